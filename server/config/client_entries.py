"""Reads one server of a client's file: its keys under our names, and the keys that are not used.

Units of `timeout`: Cline, Roo Code, Kilo Code and Goose count seconds; Gemini CLI, Qwen Code, Claude Code, Kiro, Amazon Q
and opencode milliseconds. Where the client is not known, 1000 and more are milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from ...sessions.json_codec import JSON

Dialect: TypeAlias = Literal["common", "gemini", "zed", "opencode", "goose", "codex"]
TimeUnit: TypeAlias = Literal["s", "ms"]

ENV_FILE: Final = "envFile"
"""The key of a file of NAME=VALUE lines, which is read when the sources are merged."""
APPROVALS: Final = ("alwaysAllow", "autoApprove", "trust")
"""Keys by which a client asks its user less often. Statehold asks for no approval."""

_COMMON_KEYS: Final = ("command", "args", "env", "cwd", "url", "headers", "disabled", ENV_FILE)
_EXPANDED_KEYS: Final = ("command", "args", "env", "cwd", "url", "headers")
_URL_KEYS: Final = {"serverUrl": None, "httpUrl": "http"}
_OFF: Final = frozenset({"false", "0", "no", "off"})
_TYPE_KEYS: Final = ("type", "transport", "transportType")
_INCLUDE_KEYS: Final = ("includeTools", "enabledTools", "tools")
_EXCLUDE_KEYS: Final = ("excludeTools", "disabledTools")
_OF_GEMINI: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
_TRANSPORTS: Final = {
    "stdio": "stdio",
    "local": "stdio",
    "sse": "sse",
    "http": "http",
    "remote": "http",
    "streamablehttp": "http",
}
_LEAST_MILLISECONDS: Final = 1000
_MOST: Final = 1e10
_LABELS: Final = frozenset({"name", "displayName", "display_name", "title", "description", "icon"})
"""Keys for readers, which change nothing."""
_BARE_VARIABLE: Final = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")
"""A variable as Gemini CLI and Goose have it; one that is not set stays as it is written."""
_OPENCODE_VARIABLE: Final = re.compile(r"\{(env|file):([^{}]+)\}")


def read_entry(
    entry: Mapping[str, Any], dialect: Dialect = "common", unit: TimeUnit | None = None
) -> tuple[JSON, list[str]]:
    """Return one server with our names of its settings, and the keys that are not used. Variables are not replaced yet.

    `unit` is that of a `timeout`, None if it is not known.
    """
    rest = dict(entry)
    if dialect == "common" and not _OF_GEMINI.isdisjoint(rest):
        dialect = "gemini"
    if unit is None and dialect == "gemini":
        unit = "ms"
    settings = _OF_CLIENTS[dialect](rest) if dialect in _OF_CLIENTS else {}
    for key, transport in _URL_KEYS.items():
        # It goes before `url`, as for the clients that have it.
        if isinstance(rest.get(key), str) and "url" not in settings:
            settings["url"] = rest.pop(key)
            if transport:
                settings["type"] = transport
    for key in _COMMON_KEYS:
        if rest.get(key) is not None and key not in settings:
            settings[key] = rest.pop(key)
    if str(rest.pop("enabled", True)).lower() in _OFF:
        settings["disabled"] = True
    for kind in [rest.pop(key, None) for key in _TYPE_KEYS]:
        if isinstance(kind, str) and kind:
            settings["type"] = transport_name(kind)
            break
    _read_tools(rest, settings)
    seconds = _seconds(rest.get("timeout"), unit)
    if seconds is not None:
        settings["call_seconds"] = seconds
        del rest["timeout"]
    _write_texts(settings)
    unused = [key for key, value in rest.items() if key not in _LABELS and value is not None]
    return settings, unused


def transport_name(kind: str) -> str:
    """Return our name of a transport, which clients spell in many ways. An unknown name is returned unchanged."""
    return _TRANSPORTS.get(re.sub(r"[-_]", "", kind).lower(), kind)


def _read_tools(rest: JSON, settings: JSON) -> None:
    """Read the lists of tools to offer and not to offer. `*` stands for all."""
    for key in _INCLUDE_KEYS:
        names = _names(rest.get(key))
        if names is not None:
            del rest[key]
            if "*" not in names:
                settings["include"] = [*settings.get("include", ()), *names]
    for key in _EXCLUDE_KEYS:
        names = _names(rest.get(key))
        if names is not None:
            del rest[key]
            settings["exclude"] = [*settings.get("exclude", ()), *names]


def _names(value: object) -> list[str] | None:
    """Return names of tools; Gemini CLI allows `name(arguments)`. None if it is no list of texts."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    names = [item.partition("(")[0] for item in items if isinstance(item, str)]
    return names if len(names) == len(items) else None


def _seconds(value: object, unit: TimeUnit | None) -> float | None:
    """Return a time limit in seconds; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _MOST:
        return None
    if unit is None:
        unit = "ms" if value >= _LEAST_MILLISECONDS else "s"
    return value / 1000 if unit == "ms" else float(value)


def _write_texts(settings: JSON) -> None:
    """Write numbers and booleans as JSON does, since processes and headers know only texts. VS Code allows null in `env`."""
    for key in ("env", "headers"):
        if isinstance(settings.get(key), dict):
            table = cast(JSON, settings[key])
            settings[key] = {
                name: _text(value) for name, value in table.items() if value is not None
            }
    if isinstance(settings.get("args"), list):
        settings["args"] = [_text(value) for value in settings["args"]]


def _text(value: object) -> object:
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _read_zed(rest: JSON) -> JSON:
    """Zed: `command` may be a table with `path`, `args`, `env` and `timeout`."""
    rest.pop("source", None)
    command: object = rest.get("command")
    if isinstance(command, dict):
        del rest["command"]
        rest |= {("command" if key == "path" else key): v for key, v in cast(JSON, command).items()}
    return {}


def _read_opencode(rest: JSON) -> JSON:
    """opencode: `command` is a list with the arguments, `timeout` is that of the start."""
    settings: JSON = {}
    words: object = rest.get("command")
    if isinstance(words, list) and words:
        rest["command"], *rest["args"] = cast("list[Any]", words)
    if "environment" in rest:
        rest["env"] = rest.pop("environment")
    rest.pop("type", None)
    limits: object = rest.pop("timeout", None)
    times = cast(JSON, limits) if isinstance(limits, dict) else {"startup": limits}
    for key, name in (("startup", "connect_seconds"), ("request", "call_seconds")):
        seconds = _seconds(times.get(key), "ms")
        if seconds is not None:
            settings[name] = seconds
    _write_variables(rest, _EXPANDED_KEYS, _OPENCODE_VARIABLE, _opencode_variable)
    return settings


def _opencode_variable(match: re.Match[str]) -> str:
    """Return opencode's `{env:NAME}` or `{file:PATH}` as a variable of ours. An unset name is empty there."""
    return f"${{{match[2]}:-}}" if match[1] == "env" else f"${{file:{match[2]}}}"


def _read_gemini(rest: JSON) -> JSON:
    """Gemini CLI: variables also as `$NAME`."""
    _write_variables(rest, (*_EXPANDED_KEYS, *_URL_KEYS), _BARE_VARIABLE, _braced_variable)
    return {}


def _braced_variable(match: re.Match[str]) -> str:
    return f"${{{match[1]}:-{match[0]}}}"


def _write_variables(
    rest: JSON,
    keys: Iterable[str],
    pattern: re.Pattern[str],
    variable_of: Callable[[re.Match[str]], str],
) -> None:
    """Write the variables of a client in the values of these keys as ours."""

    def write(value: Any) -> Any:
        if isinstance(value, list):
            return [write(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: write(item) for key, item in cast(JSON, value).items()}
        return pattern.sub(variable_of, value) if isinstance(value, str) else value

    rest |= {key: write(rest[key]) for key in keys if key in rest}


def _read_goose(rest: JSON) -> JSON:
    """Goose: `cmd`, `envs`, `uri`, names of secrets in `env_keys`, and seconds."""
    inner: object = rest.pop("config", None)
    if isinstance(inner, dict):
        rest |= cast(JSON, inner)
    for theirs, ours in (("cmd", "command"), ("envs", "env"), ("uri", "url")):
        if theirs in rest:
            rest[ours] = rest.pop(theirs)
    rest.pop("bundled", None)
    _write_variables(rest, ("headers",), _BARE_VARIABLE, _braced_variable)
    keys = _names(rest.get("env_keys"))
    if keys is not None:
        # Goose has them in its keyring; here they come from the environment.
        del rest["env_keys"]
        rest["env"] = {key: f"${{{key}}}" for key in keys} | (rest.get("env") or {})
    names = _names(rest.get("available_tools"))
    if names is not None:
        del rest["available_tools"]
    return {"include": names} if names else {}


def _read_codex(rest: JSON) -> JSON:
    """Codex: names of variables in `env_vars`, `bearer_token_env_var` and `env_http_headers`; units in names of times."""
    settings: JSON = {}
    headers: JSON = {}
    if isinstance(rest.get("http_headers"), dict):
        headers |= rest.pop("http_headers")
    if isinstance(rest.get("env_http_headers"), dict):
        headers |= {key: f"${{{name}}}" for key, name in rest.pop("env_http_headers").items()}
    if isinstance(rest.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{{rest.pop('bearer_token_env_var')}}}"
    if headers:
        rest["headers"] = headers
    variables = list(_variable_names(rest.pop("env_vars", ())))
    if variables:
        settings["inherit_env"] = variables
    for theirs, ours in (("enabled_tools", "includeTools"), ("disabled_tools", "excludeTools")):
        if theirs in rest:
            rest[ours] = rest.pop(theirs)
    times: tuple[tuple[str, str, TimeUnit], ...] = (
        ("tool_timeout_sec", "call_seconds", "s"),
        ("startup_timeout_ms", "connect_seconds", "ms"),
        ("startup_timeout_sec", "connect_seconds", "s"),
    )
    for theirs, ours, unit in times:
        seconds = _seconds(rest.get(theirs), unit)
        if seconds is not None:
            settings[ours] = seconds
            del rest[theirs]
    rest.pop("required", None)
    return settings


def _variable_names(values: object) -> Iterable[str]:
    """Yield the names in `env_vars`, whose items are names or tables with a name."""
    for value in cast("list[object]", values) if isinstance(values, list) else ():
        name = cast(JSON, value).get("name") if isinstance(value, dict) else value
        if isinstance(name, str):
            yield name


_OF_CLIENTS: Final = {
    "gemini": _read_gemini,
    "zed": _read_zed,
    "opencode": _read_opencode,
    "goose": _read_goose,
    "codex": _read_codex,
}

__all__ = ["APPROVALS", "ENV_FILE", "Dialect", "TimeUnit", "read_entry", "transport_name"]
