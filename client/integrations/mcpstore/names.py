"""The names of tools in a space: `<service>_<tool>`, as MCPStore does, or by their own name where it is the only one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from typing import Final

from ....sessions.wording import near_names
from ...errors import InvalidArgument, UnknownTool
from ...protocol.calls import NEAR, NEAR_SIMILARITY
from ...results import Tool
from ...transport.base import INVALID_PARAMS

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.\-]{1,30}")


@dataclass(frozen=True, slots=True)
class SpaceTool:
    """One tool of a space, with its name there and its name on the server."""

    tool: Tool
    """The tool of the list: named `<service>_<tool>`, with the name that the space has for its service."""
    original: str
    """Its name on its own MCP server."""
    remote: str


def prefix_of(agent_id: str | None, service: str) -> str:
    """Return the prefix of the tools of a service on an embedded Statehold, where all spaces share one list of tools."""
    parts = [service] if agent_id is None else [agent_id, service]
    if all(_PLAIN.fullmatch(part) for part in parts):
        return "".join(f"{part}/" for part in parts)
    return blake2s("\0".join(parts).encode(), digest_size=8).hexdigest() + "/"


def space_tool(tool: Tool, service: str, prefix: str) -> SpaceTool:
    """Return a tool of the server under the name that its space has for it."""
    original = tool.name.removeprefix(prefix)
    local_name = original if original.startswith(f"{service}_") else f"{service}_{original}"
    # use_tool() takes no session: a model that reads the schema should not be asked for one.
    shown = replace(tool, name=local_name, service=service, input_schema=tool.arguments)
    return SpaceTool(shown, original, tool.name)


def find_tool(
    tools: Sequence[SpaceTool], name: str, service: str | None, bound_services: Collection[str]
) -> SpaceTool | None:
    """Return the tool that a caller means, None when there is none; `bound_services` are the services its session uses.

    Raises:
        InvalidArgument: several services have a tool of that name.
    """
    among = [each for each in tools if service is None or each.tool.service == service]
    for fits in (
        [each for each in among if each.tool.name == name],
        [each for each in among if each.original == name],
        [each for each in among if each.remote == name],
    ):
        if len(fits) > 1:
            fits = [each for each in fits if each.tool.service in bound_services] or fits
        if len(fits) > 1:
            raise InvalidArgument(
                f"Several services have a tool {name!r}.",
                recovery=f"Call {_list_choices(each.tool.name for each in fits)}, or name its service.",
            )
        if fits:
            return fits[0]
    return None


def unknown_tool(tools: Sequence[SpaceTool], name: str) -> UnknownTool:
    """Return the error for a tool that is not there, with the most similar names."""
    names = {each.original: each.tool.name for each in tools}
    names |= {each.tool.name: each.tool.name for each in tools}
    near = dict.fromkeys(
        names[each] for each in near_names(name, names, count=8, similarity=NEAR_SIMILARITY)
    )
    return UnknownTool(INVALID_PARAMS, name, list(near)[:NEAR])


def _list_choices(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))


__all__ = ["SpaceTool", "find_tool", "prefix_of", "space_tool", "unknown_tool"]
