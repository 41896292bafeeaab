"""Any client's `mcpServers` file, read as that client reads it.

Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI and VS Code keep almost the same JSON. This module evens out
the differences and ignores unknown keys. It never puts a value of such a file into a message.
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

_KEYS = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled")
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
    """Return the entries of a client's file under our names of their keys, nothing expanded yet.

    Raises:
        ConfigError: when it cannot be read, is not JSON, or holds no block of servers.
    """
    if path.suffix.lower() == ".toml":
        raise ConfigError(
            f"{path}: is TOML, and --services reads a client's JSON; give it as --config"
        )
    block = _block(parse_json(path, read_text(path, "--services")))
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
    """Return the text of a file that `flag` named, or raise ConfigError in one line."""
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


def _block(document: object) -> JSON | None:
    if not isinstance(document, dict):
        return None
    found = cast(JSON, document)
    for key in ("mcpServers", "servers"):
        if isinstance(found.get(key), dict):
            return found[key]
    return _block(found["mcp"]) if "mcp" in found else None


def entry_of(entry: JSON) -> JSON:
    """Return one entry of such a file under our names of its keys."""
    found = {key: entry[key] for key in _KEYS if entry.get(key) is not None}
    for key, transport in _URL_KEYS.items():
        if isinstance(entry.get(key), str) and "url" not in found:
            found["url"] = entry[key]
            if transport:
                found["type"] = transport
    if entry.get("enabled") is False:
        found["disabled"] = True
    for key in ("env", "headers"):
        if isinstance(found.get(key), dict):
            found[key] = _strings(found[key])
    kind = entry.get("type") or entry.get("transport") or entry.get("transportType")
    if isinstance(kind, str):
        found["type"] = transport_name(kind)
    return found


def transport_name(kind: str) -> str:
    """Return our word for a transport that clients spell in many ways, or the word itself."""
    return _TRANSPORTS.get(re.sub(r"[-_]", "", kind).lower(), kind)


def _strings(values: Mapping[str, Any]) -> JSON:
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
        ConfigError: when a variable is not set; it names the variable and `where` it is used.
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
        return _variable(match, where, folder, environ)

    return _VARIABLE.sub(replace, value)


def _variable(match: re.Match[str], where: str, folder: Path, environ: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "${"
    if match["input"] is not None:
        raise ConfigError(
            f"{where}: ${{input:{match['input']}}} is asked for by the editor only; use ${{env:NAME}} and set NAME"
        )
    name = match["name"]
    if environ.get(name):
        return environ[name]
    if not match["env"] and name in (known := _editor_variables(folder)):
        return known[name]
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
