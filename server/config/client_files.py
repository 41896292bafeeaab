"""Reads the file in which a client has its MCP servers, as that client reads it.

Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI and VS Code use almost the same JSON; Zed and opencode have
JSON of their own, Codex TOML, Goose and Continue YAML. Values of such a file never appear in a message, since they may be
secret.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, cast

from ...access.config.types import ConfigError
from ...sessions.json_codec import JSON
from ...sessions.one_line import one_line
from ...tools.foreign_file import SETTINGS_BYTES, read_foreign
from .client_entries import Dialect, TimeUnit, read_entry
from .client_restrictions import APPROVALS, read_outside

_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_IN_SECONDS: Final = frozenset(
    {"cline_mcp_settings.json", "mcp_settings.json", ".roo", ".kilocode", ".cline"}
)
"""Files and folders of clients whose `timeout` is in seconds."""
_IN_MILLISECONDS: Final = frozenset(
    {".mcp.json", ".claude.json", ".claude", ".gemini", ".qwen", ".kiro", ".amazonq", "amazonq"}
)
_OF_GEMINI: Final = frozenset({".gemini", ".qwen"})
"""The folders of Gemini CLI and of Qwen Code, which descends from it."""
_BUILT_IN: Final = frozenset({"builtin", "platform", "frontend", "inline_python"})
"""The types of Goose's extensions that are no servers which anyone else can start."""
_TABLES: Final[tuple[tuple[str, Dialect], ...]] = (
    *(("mcpServers", "common"), ("servers", "common"), ("amp.mcpServers", "common")),
    *(("context_servers", "zed"), ("mcp_servers", "codex"), ("extensions", "goose")),
)
"""The keys of tables of servers, and the kinds of their entries."""
_SERVER_KEYS: Final = frozenset({"command", "cmd", "url", "uri", "serverUrl", "httpUrl", "baseUrl"})
_MAX_DEPTH: Final = 8
"""The number of keys above a server that is looked for."""
_MAX_LISTED: Final = 5
"""The number of places that a note lists."""
_PROGRAM: Final = "statehold"


def parse_toml(path: Path, text: str) -> JSON:
    """Return the tables of a TOML file.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        remedy = (
            "it looks like JSON: give a client's file as --services"
            if text.lstrip().startswith("{")
            else "correct the TOML"
        )
        position = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        location = (
            f"line {position[1]}, column {position[2]}"
            if position and position[1]
            else "end of file"
        )
        problem = str(error).split(" (at ")[0]
        raise ConfigError(f"{path}: {location}: {problem}; {remedy}") from None


@dataclass(slots=True)
class ClientFile:
    """The servers in a client's file with our names of their settings; variables are not replaced yet.

    `notes` are lines about keys and entries that are not used, without values. An entry that starts Statehold is not
    among the services: the client has it for the Statehold that reads the file, which would start itself without end. An
    entry may be no table; the check of the settings reports it.
    """

    services: JSON = field(default_factory=dict[str, Any])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """Why a service must not be used: a restriction in the file that Statehold cannot obey."""
    notes: list[str] = field(default_factory=list[str])


_YAML_VALUES: Final = (
    ("bool", "^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", "^(?:0|-?[1-9][0-9]{0,18})$", "-0123456789"),
    ("null", "^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("merge", "^<<$", "<"),
)
"""The values without quotes that are no texts: tag, pattern, first characters."""


def read_client_file(path: Path, named_by: str) -> ClientFile:
    """Return the servers in a client's file. `named_by` is the flag, variable or argument that gives the path.

    Raises:
        ConfigError: the file cannot be read, cannot be parsed, or lists no servers.
    """
    return read_servers(path, parse_document(path, read_text(path, named_by)))


def read_servers(path: Path, document: object) -> ClientFile:
    """Return the servers in the document of a client's file, as read_client_file() does.

    Raises:
        ConfigError: it lists no servers.
    """
    block, dialect = _find_services(document)
    elsewhere = [place for place, table in _tables(document) if table is not block]
    if block is None:
        places = f"; servers in {_list(elsewhere)} are not read" if elsewhere else ""
        raise ConfigError(f"{_missing_block(path)}{places or _similar_keys(document)}")
    if dialect == "common" and path.parent.name in _OF_GEMINI:
        dialect = "gemini"
    unit = _time_unit(path, dialect)
    common = _common_settings(document) if dialect == "opencode" else {}
    file = ClientFile()
    unused_keys: dict[str, list[str]] = {}
    built_in: list[str] = []
    own: list[str] = []
    for name, entry in block.items():
        if not isinstance(entry, dict):
            file.services[name] = entry
        elif _is_built_in(cast(JSON, entry), dialect):
            built_in.append(name)
        else:
            read = read_entry({**common, **entry}, dialect, unit)
            if starts_statehold(read.settings):
                own.append(name)
                continue
            file.services[name] = read.settings
            if read.problem is not None:
                file.problems[name] = (
                    f"{path}: services.{name}.{read.problem}; remove it, or write `include` or `exclude` "
                    f"below [services.{name}]"
                )
            if read.unused:
                unused_keys[name] = read.unused
    _restrict(file, path, document, block)
    file.notes = [
        *_note_of_keys(path, unused_keys),
        *_note_of_entries(path, "only this client can start them", built_in),
        *_note_of_entries(path, "Statehold is no service of itself", own),
        *_note_of_places(path, elsewhere),
    ]
    return file


def read_text(path: Path, named_by: str) -> str:
    """Return the text of a file. `named_by` is the flag, variable or argument that gives the path.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return read_foreign(path, SETTINGS_BYTES, any_kind=True).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; correct {named_by}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); correct {named_by} or its permissions"
        ) from None


def parse_document(path: Path, text: str) -> object:
    """Return the values of a client's file, whose name says the format.

    Raises:
        ConfigError: it cannot be parsed.
    """
    match path.suffix.lower():
        case ".toml":
            return parse_toml(path, text)
        case ".yaml" | ".yml":
            return _parse_yaml(path, text)
        case _:
            return parse_json(path, text)


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


def _parse_yaml(path: Path, text: str) -> object:
    import yaml  # here because most clients have JSON

    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, characters in _YAML_VALUES:
        for character in characters:
            resolvers.setdefault(character, []).append(
                (f"tag:yaml.org,2002:{tag}", re.compile(pattern))
            )

    class Loader(yaml.SafeLoader):
        """Reads YAML 1.2, as these clients do: `yes`, `22:22`, `012`, `3.10` and dates are texts."""

        yaml_implicit_resolvers = resolvers

    try:
        return _with_text_keys(yaml.load(text, Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        problem = one_line(error.problem or "is not YAML")
        raise ConfigError(f"{path}: {place}{problem}; correct the YAML") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: is not YAML; correct it") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; correct the YAML") from None


def _with_text_keys(value: Any) -> Any:
    """Return a value of YAML, whose keys may be numbers and the like, with texts as keys."""
    if isinstance(value, list):
        return [_with_text_keys(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {str(key): _with_text_keys(item) for key, item in table.items()}
    return value


def _find_services(document: object) -> tuple[JSON | None, Dialect]:
    """Return the table of servers and the kind of its entries."""
    if not isinstance(document, dict):
        return None, "common"
    members = cast(JSON, document)
    for key, dialect in _TABLES:
        block = _by_name(members.get(key))
        if block is not None:
            return block, dialect
    if members and all(map(_is_server, members.values())):
        return members, "common"  # Warp shows and takes the servers without a key above them
    inner = members.get("mcp")
    block, dialect = _find_services(inner)
    if block is not None and any(map(_is_of_opencode, block.values())):
        return block, "opencode"
    entries = cast(JSON, inner) if isinstance(inner, dict) and block in (None, inner) else {}
    if any(map(_is_of_opencode, entries.values())):
        return entries, "opencode"
    if any(map(_is_entry, entries.values())):
        return entries, "crush"
    return block, dialect


def _tables(document: object) -> Iterator[tuple[str, object]]:
    """Yield all tables of servers in a document with their places, also those of a project or a profile."""
    names = {key for key, _ in _TABLES}
    unread: list[tuple[tuple[str, ...], object]] = [((), document)]
    for place, value in unread:
        if not isinstance(value, dict) or len(place) > _MAX_DEPTH:
            continue
        members = cast(JSON, value)
        if place and place[-1] in names and any(map(_is_server, members.values())):
            yield ".".join(place), members
        else:
            unread += [((*place, key), member) for key, member in members.items()]


def _is_server(entry: object) -> bool:
    return isinstance(entry, dict) and not _SERVER_KEYS.isdisjoint(cast(JSON, entry))


def _by_name(block: object) -> JSON | None:
    """Return a table of servers. Continue has a list of entries with a name each."""
    if isinstance(block, dict):
        return cast(JSON, block)
    named: JSON = {}
    for entry in cast("list[object]", block) if isinstance(block, list) else ():
        if isinstance(entry, dict) and "name" in entry:
            named[str(cast(JSON, entry)["name"])] = entry
    return named or None


def _is_entry(entry: object) -> bool:
    keys = ("type", "command", "url")
    return isinstance(entry, dict) and any(key in cast(JSON, entry) for key in keys)


def _is_of_opencode(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    members = cast(JSON, entry)
    return members.get("type") in ("local", "remote") or isinstance(members.get("command"), list)


def _common_settings(document: object) -> JSON:
    """Return the settings that opencode has for all servers beside the table `mcp.servers`."""
    inner = cast("dict[str, JSON]", document)["mcp"]
    return {key: inner[key] for key in ("timeout",) if "servers" in inner and key in inner}


def _missing_block(path: Path) -> str:
    match path.suffix.lower():
        case ".toml":
            return f"{path}: has no [mcp_servers.NAME], as Codex has; if it is a file of Statehold, give it as --config"
        case ".yaml" | ".yml":
            return f'{path}: has no "extensions" or "mcpServers"; give the file of a client that has one'
        case _:
            return f'{path}: has no "mcpServers" (or "servers") object; give the file of a client that has one'


def _similar_keys(document: object) -> str:
    """Name keys that may be a table of servers of a client that is not known."""
    keys = cast(JSON, document) if isinstance(document, dict) else {}
    similar = [key for key in keys if re.search("mcp|server", key, re.IGNORECASE)]
    return f"; {_list(similar)} is not read" if similar else ""


def _time_unit(path: Path, dialect: Dialect) -> TimeUnit | None:
    """Return the unit of `timeout` in a file; None where its client is not known, or where each entry says it."""
    places = {path.name, path.parent.name, path.parent.parent.name}
    if not places.isdisjoint(_IN_SECONDS):
        return "s"
    return "ms" if not places.isdisjoint(_IN_MILLISECONDS) else None


def _is_built_in(entry: JSON, dialect: Dialect) -> bool:
    """Whether an entry is an extension that only its client can start."""
    if dialect == "goose":
        config: object = entry.get("config", entry)
        return isinstance(config, dict) and cast(JSON, config).get("type") in _BUILT_IN
    return dialect == "zed" and "command" not in entry and "url" not in entry


def starts_statehold(settings: JSON) -> bool:
    """Whether the settings of a service start Statehold, itself or through uv, uvx, wsl or python."""
    command, args = settings.get("command"), settings.get("args")
    if isinstance(command, str) and PurePath(command).stem == _PROGRAM:
        return True
    words = cast("list[object]", args) if isinstance(args, list) else []
    # The value of an option such as --directory may be a folder of this name.
    return any(
        word == _PROGRAM and not str(before).startswith("--")
        for before, word in pairwise([command, *words])
    )


def _restrict(file: ClientFile, path: Path, document: object, block: object) -> None:
    """Apply the restrictions that stand outside of the table of servers."""
    outer = cast(JSON, document) if document is not block else {}
    for name, outside in read_outside(outer, file.services.keys()).items():
        settings: object = file.services[name]
        if not isinstance(settings, dict):
            continue
        own = cast(JSON, settings)
        if "exclude" in outside.settings:
            outside.settings["exclude"] += own.get("exclude", [])
        if "include" in own and "include" in outside.settings:
            outside.settings["include"] = [
                tool for tool in own["include"] if tool in outside.settings["include"]
            ]
        own |= outside.settings
        if outside.problem is not None:
            file.problems.setdefault(
                name,
                f"{path}: {outside.problem}: restricts tools in a way that Statehold cannot apply; "
                f"remove it, or write `include` or `exclude` below [services.{name}]",
            )


def _note_of_keys(path: Path, unused_keys: Mapping[str, list[str]]) -> list[str]:
    if not unused_keys:
        return []
    listed = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in unused_keys.items())
    note = f"{path}: these keys are not used: {listed}"
    if any(key in APPROVALS for keys in unused_keys.values() for key in keys):
        note += (
            f" ({', '.join(APPROVALS)}: the client of Statehold asks for approvals, not Statehold)"
        )
    return [note]


def _note_of_entries(path: Path, reason: str, names: list[str]) -> list[str]:
    return [f"{path}: left out, since {reason}: {', '.join(names)}"] if names else []


def _note_of_places(path: Path, places: list[str]) -> list[str]:
    return [f"{path}: servers in these places are not read: {_list(places)}"] if places else []


def _list(places: list[str]) -> str:
    listed = ", ".join(places[:_MAX_LISTED])
    return (
        listed if len(places) <= _MAX_LISTED else f"{listed} and {len(places) - _MAX_LISTED} more"
    )
