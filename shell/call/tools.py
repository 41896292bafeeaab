"""`statehold tools`: the tools of the server, one line each, or the arguments of some."""

from __future__ import annotations

import json

from ...server.exit_codes import OK, USAGE
from ...server.printing import complain, write, write_json
from ...server.sockets.command import ANY, EXISTING
from ...server.sockets.request import as_list, as_object
from ...sessions.one_line import one_line
from .connect import connect
from .connection import LocalConnection
from .words import FIND, Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .remote import RemoteConnection


LINE = 110
"""Characters of a line of the list."""
DEPTH = 3
"""Levels of nested arguments that are shown."""


def show_tools(words: Words) -> int:
    """Print the tools that a command line names, or all. Return the exit code."""
    session = words.options.get("--session")
    connection = connect(words, session, ANY if session is None else EXISTING)
    try:
        tools = list_tools(connection)
    finally:
        connection.close()
    known = tools
    wanted = words.options.get("--grep", "").lower()
    if wanted:
        tools = [
            tool for tool in tools if wanted in f"{tool['name']} {tool.get('description')}".lower()
        ]
    unknown = [name for name in words.rest if all(tool["name"] != name for tool in tools)]
    if words.rest:
        tools = [tool for tool in tools if tool["name"] in words.rest]
    if words.has("--json"):
        write_json(tools)
    elif words.rest:
        write("\n".join(map(describe, tools)))
    else:
        write("".join(f"{_line(tool)}\n" for tool in tools))
    return _complain_of_tool(unknown[0], [tool["name"] for tool in known]) if unknown else OK


def _complain_of_tool(name: str, names: list[str]) -> int:
    # Imported here: only an error needs it.
    from ...sessions.wording import did_you_mean

    hint = did_you_mean(name, names)
    return complain(one_line(f"there is no tool {name}.{hint} {FIND}"), USAGE)


def list_tools(connection: LocalConnection | RemoteConnection) -> list[dict[str, Any]]:
    """Return the definitions of all tools, as MCP has them."""
    result = connection.request("tools/list", {})
    return [as_object(tool) for tool in as_list(result.get("tools"))]


def _line(tool: dict[str, Any]) -> str:
    """Return the name and the first sentence of the description of a tool."""
    description = " ".join(str(tool.get("description") or tool.get("title") or "").split())
    sentence = description.partition(". ")[0].rstrip(".")
    line = f"{one_line(str(tool['name']))}  {sentence}".rstrip()
    return line if len(line) <= LINE else f"{line[: LINE - 3]}..."


def describe(tool: dict[str, Any]) -> str:
    """Return a tool with its description and its arguments, one line each, the required ones first."""
    schema = as_object(tool.get("inputSchema"))
    lines = [one_line(str(tool["name"]))]
    lines += [f"  {line}" for line in str(tool.get("description") or "").splitlines()]
    lines += _arguments(schema, schema, 1)
    return "\n".join(lines) + "\n"


def _arguments(schema: dict[str, Any], root: dict[str, Any], level: int) -> list[str]:
    required = as_list(schema.get("required"))
    members = [
        (name, _resolve(as_object(each), root))
        for name, each in as_object(schema.get("properties")).items()
    ]
    members.sort(key=lambda member: member[0] not in required)
    lines: list[str] = []
    for name, member in members:
        optional = "" if name in required else ", optional"
        default = (
            f", default {json.dumps(member['default'], ensure_ascii=False)}"
            if member.get("default") not in (None, "")
            else ""
        )
        text = " ".join(str(member.get("description") or "").split())
        kind = f"{one_line(_kind(member, root))}{optional}{default}"
        lines.append(f"{'  ' * level}{one_line(name)} ({kind}){f': {text}' if text else ''}")
        if level < DEPTH:
            lines += _arguments(_nested(member, root), root, level + 1)
    return lines


def _nested(member: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the object in an argument, or in the items of a list; an empty one without any."""
    for each in (member, _resolve(as_object(member.get("items")), root)):
        if each.get("properties"):
            return each
    return {}


def _kind(member: dict[str, Any], root: dict[str, Any]) -> str:
    """Return what an argument takes in a few words."""
    if isinstance(member.get("enum"), list):
        choices = as_list(member["enum"])
        return "|".join(each if isinstance(each, str) else json.dumps(each) for each in choices)
    kinds = [str(kind) for kind in as_list(member.get("type")) or [member.get("type") or "any"]]
    names = {"string": "text", "boolean": "yes|no", "object": "JSON", "integer": "whole number"}
    words = [names.get(kind, kind) for kind in kinds if kind != "null"]
    if "array" in kinds:
        items = _kind(_resolve(as_object(member.get("items")), root), root)
        words[words.index("array")] = f"list of {items}" if items != "any" else "list"
    return " or ".join(words)


def _resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to, and with the first of its alternatives that is not null."""
    for _ in range(5):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: object = root
            for part in reference[2:].split("/"):
                target = as_object(target).get(part)
            schema = {
                **as_object(target),
                **{key: each for key, each in schema.items() if key != "$ref"},
            }
            continue
        for name in ("anyOf", "oneOf", "allOf"):
            options = [as_object(option) for option in as_list(schema.get(name))]
            options = [option for option in options if option.get("type") != "null"]
            if options:
                rest = {key: each for key, each in schema.items() if key != name}
                schema = {**_merged(options), **rest}
                break
        else:
            return schema
    return schema


def _merged(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one schema for several alternatives: that of the only one, else their types."""
    if len(options) == 1:
        return options[0]
    kinds = [option.get("type") for option in options]
    texts = [kind for kind in kinds if isinstance(kind, str)]
    return {"type": list(dict.fromkeys(texts))} if texts else options[0]
