"""Reads the `mcpServers` file of any MCP client as that client reads it.

Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI and VS Code use almost the same JSON. This module evens out
the differences and ignores unknown keys. Values of such a file never appear in a message, since they may be secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ...sessions.json_codec import JSON
from .model import ConfigError

_COMMON_KEYS = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled")
_URL_KEYS = {"serverUrl": None, "httpUrl": "http"}
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "sse": "sse",
    "http": "http",
    "remote": "http",
    "streamablehttp": "http",
}
_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_VARIABLE = re.compile(
    r"\$\$(?P<escaped>\{)|\$\{input:(?P<input>[^}]*)\}"
    r"|\$\{(?P<env>env:)?(?P<name>[A-Za-z_]\w*|/)(?P<default>:-[^}]*)?\}"
)


def read_services(path: Path) -> dict[str, JSON]:
    """Return the servers in a client's file, with our names of their settings. Variables are not replaced yet.

    Raises:
        ConfigError: the file cannot be read, is not JSON, or lists no servers.
    """
    if path.suffix.lower() == ".toml":
        raise ConfigError(
            f"{path}: is TOML, and --services reads a client's JSON; give it as --config"
        )
    block = _find_services(parse_json(path, read_text(path, "--services")))
    if block is None:
        raise ConfigError(
            f'{path}: has no "mcpServers" (or "servers") object; give the file of a client that has one'
        )
    entries: dict[str, JSON] = {}
    for name, entry in block.items():
        if not isinstance(entry, dict):
            raise ConfigError(
                f'{path}: the server "{name}" should be an object with a "command" or a "url"'
            )
        entries[name] = entry_of(cast(JSON, entry))
    return entries


def read_text(path: Path, flag: str) -> str:
    """Return the text of a file that was given with `flag`.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; correct {flag}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); correct {flag} or its permissions"
        ) from None


def parse_json(path: Path, text: str) -> object:
    """Parse JSON with the comments and trailing commas that editors allow in these files."""
    text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    text = _LAST_COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}; correct the JSON"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; correct the JSON") from None


def _find_services(document: object) -> JSON | None:
    if not isinstance(document, dict):
        return None
    members = cast(JSON, document)
    for key in ("mcpServers", "servers"):
        if isinstance(members.get(key), dict):
            return members[key]
    return _find_services(members["mcp"]) if "mcp" in members else None


def entry_of(entry: JSON) -> JSON:
    """Return one server of such a file with our names of its settings."""
    settings = {key: entry[key] for key in _COMMON_KEYS if entry.get(key) is not None}
    for key, transport in _URL_KEYS.items():
        if isinstance(entry.get(key), str) and "url" not in settings:
            settings["url"] = entry[key]
            if transport:
                settings["type"] = transport
    if entry.get("enabled") is False:
        settings["disabled"] = True
    for key in ("env", "headers"):
        if isinstance(settings.get(key), dict):
            settings[key] = _stringify(settings[key])
    kind = entry.get("type") or entry.get("transport") or entry.get("transportType")
    if isinstance(kind, str):
        settings["type"] = transport_name(kind)
    return settings


def transport_name(kind: str) -> str:
    """Return our name of a transport, which clients spell in many ways. An unknown name is returned unchanged."""
    return _TRANSPORTS.get(re.sub(r"[-_]", "", kind).lower(), kind)


def _stringify(values: Mapping[str, Any]) -> JSON:
    # VS Code allows numbers and null here; a process environment knows only strings.
    return {
        key: str(value) if isinstance(value, int | float) and value is not True else value
        for key, value in values.items()
        if value is not None
    }


def expand(value: Any, where: str, folder: Path, environ: Mapping[str, str]) -> Any:
    """Replace `${VAR}`, `${VAR:-default}` and `${env:VAR}` in every string of a JSON value.

    `$${` becomes `${`. `folder` is that of the file, for the variables of editors such as `${workspaceFolder}`.

    Raises:
        ConfigError: a variable is not set. The error names the variable and its location, `where`.
    """
    if isinstance(value, list):
        return [expand(item, where, folder, environ) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return {
            key: expand(item, f"{where}.{key}", folder, environ)
            for key, item in cast(JSON, value).items()
        }
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        return _resolve_variable(match, where, folder, environ)

    return _VARIABLE.sub(replace, value)


def _resolve_variable(
    match: re.Match[str], where: str, folder: Path, environ: Mapping[str, str]
) -> str:
    if match["escaped"]:
        return "${"
    if match["input"] is not None:
        raise ConfigError(
            f"{where}: ${{input:{match['input']}}} is asked for by the editor only; use ${{env:NAME}} and set NAME"
        )
    name = match["name"]
    if environ.get(name):
        return environ[name]
    if not match["env"] and name in (editor_variables := _editor_variables(folder)):
        return editor_variables[name]
    if match["default"] is not None:
        return match["default"][2:]
    if name in environ:
        return ""
    raise ConfigError(
        f"{where}: the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
    )


def _editor_variables(folder: Path) -> dict[str, str]:
    workspace = folder.parent if folder.name in (".vscode", ".cursor") else folder
    return {
        "userHome": str(Path.home()),
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "pathSeparator": os.sep,
        "/": os.sep,
    }
