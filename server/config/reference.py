"""The reference of all settings, written from the model, so that the documentation cannot lack one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ...tools.browser.config import BrowserConfig
from ...tools.upstream.config import Recipe, Step, UpstreamConfig
from .messages import FLAGS
from .model import Config

SERVICE_TEXTS = {
    "command": "Program to start. With a slash in it: relative to the file it stands in.",
    "args": "Its arguments.",
    "env": "Additional environment variables of the program.",
    "inherit_env": "Names of environment variables of Statehold's that it gets too.",
    "cwd": "Folder to start it in, relative to the file. Here and in `command`, `args`, `env`, `url` and `headers`, `{dir}` "
    "is a folder of each session's own; `{session_id}` and `{session_name}` are what they say; `{python}` is the "
    "interpreter of Statehold.",
    "url": "Address of a server that runs already, instead of `command`.",
    "headers": "Headers of every HTTP request to it.",
    "type": "Transport. Default: `stdio` with a command; `sse` for a URL that ends in `/sse`; else `http`.",
    "era": "Protocol to speak. `auto`: initialize first, 2026-07-28 only when that is refused.",
    "scope": "`session`: one connection per session. `shared`: one for all, for servers that keep no state.",
    "pause": "The effect of a pause. `snapshot`: save, close and restore (needs a recipe); `keep`: leave it "
    "open while `limits.live_sessions` allows; `release`: close it. Default: `snapshot` with a recipe, else `keep`.",
    "connect": "`lazy`: with the first call. `eager`: with the session.",
    "concurrency": "Calls of one session that may run at once; 1: in order.",
    "connect_seconds": "Longest time to open a connection. Default: `timeouts.connect`.",
    "first_connect_seconds": "Longest time of the first start of a command, which may download it. Default: 120, or "
    "`connect_seconds` or `timeouts.connect` where one of them is set.",
    "call_seconds": "Longest duration of one call. Default: `timeouts.call`.",
    "prefix": "Put before the names of its tools.",
    "include": "Names of the only tools to offer. Default: all.",
    "exclude": "Names of tools not to offer.",
    "recipe": "How to save what it holds and give it back to a fresh one; see below.",
    "disabled": "Leave this service out.",
}
RECIPE_TEXTS = {
    "save": "Tool calls that save, run before a pause and as a checkpoint.",
    "restore": "Tool calls that restore, run on a fresh connection; written like those of `save`.",
    "checkpoint": "Seconds between two checkpoints at least. 0: none.",
    "restores": "The restored things, in words for the caller.",
    "loses": "The lost things, in words for the caller.",
}
BROWSER_TEXTS = {
    "type": "Makes a service of any name a browser; `[services.browser]` is one without it.",
    "executable": "Path of a Chromium, Chrome or Edge. Default: the first that is found.",
    "channel": "Playwright's name of an installed browser, such as `chrome` or `msedge`.",
    "headless": "Whether it works without a window.",
    "install": "Consent to installing a browser when there is none: with the system's packages as root on Debian, else from "
    "Playwright. Without it, an error names the command.",
    "args": "More flags for the browser.",
    "cdp_endpoint": "Address of a browser elsewhere, by its DevTools.",
    "cdp_headers": "Headers of the requests to it.",
    "ws_endpoint": "Address of a browser elsewhere, by a Playwright server of the same version.",
    "viewport": "Width and height of a page.",
    "user_agent": "The user agent that pages see.",
    "locale": "Language and region of pages, such as `de-DE`.",
    "timezone": "Time zone of pages, such as `Europe/Berlin`.",
    "device": 'A device to be like, by its name in Playwright, such as `"iPhone 15"`.',
    "permissions": "The permissions of pages, such as `geolocation`. All others are denied.",
    "ignore_https_errors": "Accept broken certificates.",
    "init_script": "JavaScript file that every page runs first.",
    "test_id_attribute": "Attribute that test ids of elements stand in.",
    "allow": "Hosts that may be reached: `example.com`, `*.example.com`, `10.0.0.0/8`, with a port where wanted. Empty: "
    "all. Without `private`, a name that leads to a private address needs that address in the list too.",
    "block": "Hosts that may not be reached, written in the same way.",
    "private": "Whether private and loopback addresses may be reached. Default: only on stdio, and on loopback without "
    "`server.tokens`.",
    "bytes_per_second": "Bandwidth of a session.",
    "proxy": "HTTP proxy that all requests leave by.",
    "caps": "Groups of tools besides the core: `config`, `network`, `storage`, `testing`, `vision`, `pdf`, `devtools`. "
    "`unsafe` runs code of the caller's on this machine.",
    "snapshot": "The snapshot in the answer of an action: the whole page, its changes, or none.",
    "action_seconds": "Longest duration of one action on an element.",
    "navigation_seconds": "Longest time until a page answers.",
    "script_seconds": "Longest duration of a script of the caller's in a page.",
    "settle_seconds": "Longest time an action waits for what it caused.",
    "tabs": "Tabs a session may have.",
    "download_bytes": "Size of the largest download; all files of a session together may have four times as much.",
    "uploads": "Folders that files may be uploaded from, besides the session's own files.",
    "checkpoint": "Seconds between two checkpoints at least. 0: none.",
    "keep_seconds": "How long a browser that no session uses is kept.",
    "key": "Key that saved sessions are encrypted with. Write it as `${NAME}` of an environment variable.",
    "connect": SERVICE_TEXTS["connect"],
    "connect_seconds": SERVICE_TEXTS["connect_seconds"],
    "call_seconds": SERVICE_TEXTS["call_seconds"],
    "prefix": SERVICE_TEXTS["prefix"],
    "include": SERVICE_TEXTS["include"],
    "exclude": SERVICE_TEXTS["exclude"],
    "disabled": "Leave it out.",
}
STEP_TEXTS = {
    "tool": "Name of the tool.",
    "arguments": "Its arguments. `{name}` in a string stands for a saved value, `{dir}` for the folder of the session.",
    "keep": "The parts of the result to save, as name = source: `file:PATH`, `text`, `text:REGEX`, or a JSON pointer.",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in the reference."""

    key: str
    kind: str
    default: str
    text: str
    flag: str = ""


def reference() -> Iterator[tuple[str, list[Setting]]]:
    """Yield each table of the configuration file with its settings; "" is the top of the file."""
    sections = {
        name: info.annotation
        for name, info in Config.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }
    top = [s for s in _settings(Config, "", {}) if s.key not in sections and s.key != "services"]
    yield "", top
    for name, model in sections.items():
        yield name, list(_settings(model, f"{name}.", {}))
    yield "services.browser", list(_settings(BrowserConfig, "", BROWSER_TEXTS))
    yield "services.NAME", list(_settings(UpstreamConfig, "", SERVICE_TEXTS))
    yield "services.NAME.recipe", list(_settings(Recipe, "", RECIPE_TEXTS))
    yield "[services.NAME.recipe.save]", list(_settings(Step, "", STEP_TEXTS))


def _settings(model: type[BaseModel], prefix: str, texts: dict[str, str]) -> Iterator[Setting]:
    for name, info in model.model_fields.items():
        key = prefix + name
        yield Setting(
            key=key,
            kind=_kind(info.annotation),
            default=_default(info),
            text=info.description or texts.get(name, ""),
            flag=FLAGS.get(key, ""),
        )


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " \\| ".join(f'"{value}"' for value in arguments)
    if origin is list:
        inner = arguments[0]
        return "list of tables" if _is_model(inner) else f"list of {_kind(inner)}"
    if origin is dict:
        return "table"
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is not None and type(None) in arguments:
        return _kind(next(a for a in arguments if a is not type(None)))
    if origin is not None and origin is not Union and arguments:
        return _kind(arguments[0])
    if _is_model(annotation):
        return "table"
    names = {float: "number", int: "integer", bool: "boolean", str: "string", SecretStr: "string"}
    return names.get(annotation, "path")


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.annotation is Config.model_fields["data"].annotation:
        return ""  # it depends on the machine; the text says how
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ("", {}):
        return ""
    if isinstance(value, float):
        return f"`{value:g}`" if value < 1e6 else f"`{value:.0f}`"
    return f"`{json.dumps(value, default=str)}`"


def markdown() -> str:
    """Return the reference as the tables of docs/configuration.md."""
    parts: list[str] = []
    for name, settings in reference():
        parts.append(
            f"### {f'`[{name}]`' if name else 'Top of the file'}".replace(" and ", "]` and `[")
        )
        lines = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        for s in settings:
            key = s.key.removeprefix(f"{name}.")
            flag = f" Flag: `{s.flag}`." if s.flag else ""
            lines.append(f"| `{key}` | {s.kind} | {s.default} | {s.text}{flag} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
