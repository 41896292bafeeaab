"""Reads one server of a client's file: its keys under our names, and the keys that are not used.

Units of `timeout`: Cline, Roo Code, Kilo Code, Crush and Goose count seconds; Gemini CLI, Qwen Code, Claude Code, Kiro,
Amazon Q and opencode milliseconds. Where the client is not known, 1000 and more are milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from ...sessions.json_codec import JSON
from .client_restrictions import NESTED, find_restriction, read_restrictions

Dialect: TypeAlias = Literal["common", "gemini", "zed", "opencode", "crush", "goose", "codex"]
TimeUnit: TypeAlias = Literal["s", "ms"]

ENV_FILE: Final = "envFile"
"""The key of a file of NAME=VALUE lines, which is read when the sources are merged."""

_COMMON_KEYS: Final = (
    *("command", "args", "env", "cwd", "url", "headers", "disabled", ENV_FILE),
    *("call_seconds", "connect_seconds", "inherit_env"),  # ours, in the file of `statehold setup`
)
_EXPANDED_KEYS: Final = ("command", "args", "env", "cwd", "url", "headers")
_URL_KEYS: Final = {"serverUrl": None, "httpUrl": "http", "baseUrl": None}
_TYPE_KEYS: Final = ("type", "transport", "transportType")
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
_MAX_NUMBER: Final = 1e10
_LABELS: Final = frozenset({"name", "displayName", "display_name", "title", "description", "icon"})
"""Keys for readers, which change nothing."""
_BARE_VARIABLE: Final = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")
"""A variable as Gemini CLI and Goose have it; one that is not set stays as it is written."""
_COPILOT_SECRET: Final = re.compile(r"^\$?(COPILOT_MCP_\w+)$")
"""The name of a secret, which Copilot's agent replaces by its value."""
_UNITS: Final[Mapping[Dialect, TimeUnit]] = {"gemini": "ms", "crush": "s", "goose": "s"}
_OPENCODE_VARIABLE: Final = re.compile(r"\{(env|file):([^{}]+)\}")


@dataclass(slots=True)
class ClientEntry:
    """One server of a client's file with our names of its settings; variables are not replaced yet."""

    settings: JSON
    unused: list[str]
    """The keys that are not used."""
    problem: str | None = None
    """Why the server must not be used: a key that Statehold cannot obey."""


def read_entry(
    entry: Mapping[str, Any], dialect: Dialect = "common", unit: TimeUnit | None = None
) -> ClientEntry:
    """Read one server. `unit` is that of a `timeout`, None if it is not known."""
    rest = dict(entry)
    for key in NESTED:
        if isinstance(rest.get(key), dict):
            rest[key] = {
                inner: dict(cast(JSON, value)) if isinstance(value, dict) else value
                for inner, value in cast(JSON, rest[key]).items()
            }
    if dialect == "common" and not _OF_GEMINI.isdisjoint(rest):
        dialect = "gemini"
    if unit is None and dialect in _UNITS:
        unit = _UNITS[dialect]
    settings = _OF_CLIENTS[dialect](rest) if dialect in _OF_CLIENTS else {}
    _read_headers(rest)
    for key, transport in _URL_KEYS.items():
        # It goes before `url`, as for the clients that have it.
        if isinstance(rest.get(key), str) and "url" not in settings:
            settings["url"] = rest.pop(key)
            if transport:
                settings["type"] = transport
    for key in _COMMON_KEYS:
        if rest.get(key) is not None and key not in settings:
            settings[key] = rest.pop(key)
    settings |= read_restrictions(rest)
    for kind in [rest.pop(key, None) for key in _TYPE_KEYS]:
        if isinstance(kind, str) and kind:
            settings["type"] = transport_name(kind)
            break
    seconds = _seconds(rest.get("timeout"), unit)
    if seconds is not None:
        settings["call_seconds"] = seconds
        del rest["timeout"]
    _write_texts(settings)
    unused = [key for key, value in rest.items() if key not in _LABELS and value not in (None, {})]
    return ClientEntry(settings, unused, _find_problem(rest, settings, dialect))


def _find_problem(rest: JSON, settings: JSON, dialect: Dialect) -> str | None:
    key = find_restriction(rest)
    if key is not None:
        return f"{key}: restricts this server in a way that Statehold cannot apply"
    if rest.get("headersHelper") is not None:
        return "headersHelper: is run by Claude Code only; write the headers as `headers`"
    if dialect == "crush":
        values = json.dumps([settings.get(key) for key in _EXPANDED_KEYS])
        if "$(" in values:
            return "$(...): is run by Crush only; use a variable"
    return None


def transport_name(kind: str) -> str:
    """Return our name of a transport, which clients spell in many ways. An unknown name is returned unchanged."""
    return _TRANSPORTS.get(re.sub(r"[-_]", "", kind).lower(), kind)


def _seconds(value: object, unit: TimeUnit | None) -> float | None:
    """Return a time limit in seconds; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _MAX_NUMBER:
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


def _read_headers(rest: JSON) -> None:
    """Read the headers that clients build from other keys: Continue's `requestOptions` and Vibe's names of variables."""
    options: object = rest.get("requestOptions")
    headers: JSON = {}
    if isinstance(options, dict) and isinstance(cast(JSON, options).get("headers"), dict):
        headers |= cast(JSON, options).pop("headers")
    access: object = rest.get("auth")
    if isinstance(access, dict) and cast(JSON, access).get("type") == "static":
        rest |= {key: value for key, value in cast(JSON, access).items() if key != "type"}
        del rest["auth"]
    if isinstance(rest.get("api_key_env"), str):
        written = str(rest.pop("api_key_format", "Bearer {token}"))
        variable = f"${{{rest.pop('api_key_env')}}}"
        headers[str(rest.pop("api_key_header", "Authorization"))] = written.replace(
            "{token}", variable
        )
    if headers:
        given: object = rest.get("headers")
        rest["headers"] = headers | (cast(JSON, given) if isinstance(given, dict) else {})
    env: object = rest.get("env")
    if isinstance(env, dict):
        rest["env"] = {
            name: _COPILOT_SECRET.sub(r"${\1}", value) if isinstance(value, str) else value
            for name, value in cast(JSON, env).items()
        }


def _read_gemini(rest: JSON) -> JSON:
    """Gemini CLI and Crush: variables also as `$NAME`."""
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
    keys: object = rest.get("env_keys")
    if isinstance(keys, list):
        # Goose has them in its keyring; here they come from the environment.
        del rest["env_keys"]
        rest["env"] = {str(key): f"${{{key}}}" for key in cast("list[object]", keys)} | (
            rest.get("env") or {}
        )
    if rest.get("available_tools") == []:
        del rest["available_tools"]  # an empty list offers all
    return {}


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
    "crush": _read_gemini,
    "goose": _read_goose,
    "codex": _read_codex,
}
