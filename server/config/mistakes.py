"""The message about a wrong setting: one line with its source, the mistake and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ...sessions.journal.redaction import Redactor
from ...sessions.one_line import one_line
from ...tools.browser.config import BrowserConfig
from ...tools.logins.config import BrowserLoginConfig, KeyConfig
from ...tools.upstream.config import UpstreamConfig
from .model import BROWSER_TAG, UPSTREAM_TAG, Config

FLAGS = {
    "data": "--data",
    "ephemeral": "--ephemeral",
    "strict": "--strict",
    "toolsets": "--toolsets",
    "server.session": "--session",
    "server.auto_session": "--auto-session",
    "server.host": "--host",
    "server.port": "--port",
    "server.workers": "--workers",
    "server.tokens": "--token-file",
    "server.session_header": "--session-header",
    "log.level": "--log-level",
    "log.format": "--log-format",
}
"""The command line flag of each setting that has one."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings: its name, the folder its paths are relative to, and its values.

    `of_client`: its services may be entries of a client's file, with a file of environment variables.
    """

    name: str
    base: Path
    values: dict[str, Any]
    of_client: bool = False

    def path(self, value: str) -> Path:
        return self.base / Path(value).expanduser()

    def has(self, key: tuple[Any, ...]) -> bool:
        value: Any = self.values
        for part in key:
            if isinstance(value, list) and isinstance(part, int):
                return part < len(cast(list[Any], value))
            if not isinstance(value, dict) or part not in value:
                return isinstance(part, int)
            value = cast(dict[Any, Any], value)[part]
        return True

    def spell(self, key: tuple[Any, ...]) -> str:
        """Return the name of a setting as it is written in this source."""
        names = [part for part in key if isinstance(part, str)]
        if self.name == "flags":
            return FLAGS.get(".".join(names), ".".join(names))
        if self.name == "environment":
            return f"STATEHOLD_{'__'.join(names)}".upper()
        return f"{self.name}: {'.'.join(str(part) for part in key)}"


def describe(mistakes: list[ErrorDetails], layers: list[Layer]) -> str:
    """Return the first mistake in one line. Values that may be secret are not shown."""
    # A wrong name explains the errors that follow from it, so it goes first.
    details = sorted(mistakes, key=lambda d: d["type"] != "extra_forbidden")
    first = details[0]
    context = first.get("ctx", {})
    field = context.get("field")
    location = [part for part in first["loc"] if part not in (BROWSER_TAG, UPSTREAM_TAG)]
    if location[:1] == ["logins"]:
        # Behind its name the kind follows, which the configuration has as a value.
        del location[2:3]
    key: tuple[Any, ...] = context.get("key") or (*location, *((field,) if field else ()))
    layer = next((layer for layer in layers if layer.has(key)), Layer("settings", Path(), {}))
    text = f"{layer.spell(key)}: {_problem(first, key, layer, BROWSER_TAG in first['loc'])}"
    if len(details) > 1:
        text += f" (and {len(details) - 1} more)"
    return one_line(text)


def _problem(
    detail: ErrorDetails, key: tuple[Any, ...], layer: Layer, of_browser: bool = False
) -> str:
    if detail["type"] == "statehold":
        return detail["msg"]
    if detail["type"] == "extra_forbidden":
        hint = nearest(".".join(str(part) for part in key), layer, of_browser=of_browser)
        return f"is not a setting; {hint or 'remove it, or see docs/reference/configuration.md'}"
    problem = detail["msg"].replace("Input should", "should", 1)
    problem = problem[:1].lower() + problem[1:]
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        problem = "should be a table of settings"
    with_secrets = ("services", "logins", "store", "sealing", "auth", "notify")
    if key[0] in with_secrets or key[:2] == ("cluster", "keys"):
        return f"{problem}; correct it"
    return f"{problem}, found {_abbreviate(detail['input'])}; {_remedy(key)}"


def _abbreviate(value: object) -> str:
    text = Redactor().text(repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _remedy(key: tuple[Any, ...]) -> str:
    default: Any = Config.model_construct()
    try:
        for part in key:
            default = getattr(default, part) if isinstance(part, str) else default
    except AttributeError:
        return "correct it"
    if isinstance(default, BaseModel):
        return "see docs/reference/configuration.md"
    if isinstance(default, float):
        default = f"{default:g}"
    if isinstance(default, list):
        default = ",".join(str(part) for part in cast(list[Any], default)) or "empty"
    return f"the default is {default}"


def nearest(key: str, layer: Layer, *, of_browser: bool = False) -> str | None:
    """Return a question with the most similar valid key, spelled as in its layer."""
    import difflib  # here because only a wrong setting needs it

    names = setting_names()
    parts = key.split(".")
    if parts[0] == "services" and len(parts) > 2:
        kind = _OF_BROWSER if of_browser else _OF_UPSTREAM
        prefix = ".".join(parts[:2])
        names = [f"{prefix}.{n.removeprefix(kind)}" for n in names if n.startswith(kind)]
    matches = difflib.get_close_matches(key, names, n=1, cutoff=0.75) or [
        name for name in names if name.rsplit(".", 1)[-1] == parts[-1] and "." in name
    ]
    if not matches:
        matches = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not matches:
        return None
    name = layer.spell(tuple(matches[0].split("."))).removeprefix(f"{layer.name}: ")
    return f"did you mean {name}?"


_OF_UPSTREAM = "services.NAME."
_OF_BROWSER = "services.browser."


def setting_names() -> list[str]:
    """Return the dotted name of every setting; NAME is the name of a service that is an MCP server, or of a
    key, SITE that of a login of the browser."""
    services = [*_names(UpstreamConfig, _OF_UPSTREAM), *_names(BrowserConfig, _OF_BROWSER)]
    logins = [*_names(KeyConfig, "logins.NAME."), *_names(BrowserLoginConfig, "logins.SITE.")]
    return [*_names(Config, ""), *logins, *services]


def _names(model: type[BaseModel], prefix: str) -> list[str]:
    names: list[str] = []
    for name, info in model.model_fields.items():
        inner = None if name in ("services", "logins") else _model_in(info.annotation)
        if inner is None:
            names.append(prefix + name)
        else:
            names += [prefix + name, *_names(inner, f"{prefix}{name}.")]
    return names


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model that an annotation such as `dict[str, Model]` or `Model | None` holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)
