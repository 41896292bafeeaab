"""The merged tool list: every tool of every service with a session argument in front, in an order that does not change.

The list depends on the configuration and on how the session is named, never on which sessions are open (2026-07-28,
server/tools: a list must not vary per connection or as a side effect of other requests).
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from mcp.shared.inbound import x_mcp_header_map
from mcp_types import Tool
from pydantic import ValidationError

from ..sessions.json_codec import JSON
from ..sessions.services import ToolSpec
from .app_pages import with_app_page
from .definition import Naming
from .schema import (
    admit_argument,
    argument_names,
    is_schema,
    sound_object_schema,
    spell_out_booleans,
)

logger = logging.getLogger("statehold.catalog")

SESSION_ARGUMENT = "session_id"
OTHER_ARGUMENT = "statehold_session_id"
"""The name of our session argument where a tool has a `session_id` of its own."""

SERVICE_META = "statehold/service"
"""The `_meta` key with which the list names the service of a tool."""

SHOWN_RENAMES = 5
"""Renamed tools that one line of a log names."""

_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")


@dataclass(frozen=True, slots=True)
class Offer:
    """The contribution of one service to the list: its tools, filtered and renamed as configured."""

    service: str
    tools: Sequence[ToolSpec]
    prefix: str = ""
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()

    def may_have(self, name: str) -> bool:
        """Whether a tool of this service could have a name in the list, as far as the configuration says."""
        return any(self._chooses(inner) for inner in self._inner_names(name))

    def _inner_names(self, name: str) -> Iterable[str]:
        for prefix in (self.prefix, own_prefix(self.service) + self.prefix):
            if name.startswith(prefix):
                yield name.removeprefix(prefix)

    def _chooses(self, tool: str) -> bool:
        return tool not in self.exclude and (self.include is None or tool in self.include)

    def chosen(self) -> list[ToolSpec]:
        return [spec for spec in self.tools if self._chooses(spec.name)]


@dataclass(frozen=True, slots=True)
class Rename:
    """A tool that is listed under another name, since an earlier service, or Statehold, has a tool of its name."""

    service: str
    wanted: str
    """The tool's name, with the configured prefix."""
    name: str
    """Its name in the list."""
    holder: str | None
    """The service with the tool of that name; None for Statehold itself."""


def describe_renames(renames: Sequence[Rename]) -> str:
    """Return one line for a log or a report: the renamed tools of one service, the reason, and the setting to change."""
    service = renames[0].service
    shown = ", ".join(f"{rename.wanted} is {rename.name}" for rename in renames[:SHOWN_RENAMES])
    more = f" and {len(renames) - SHOWN_RENAMES} more" if len(renames) > SHOWN_RENAMES else ""
    holders = sorted({rename.holder or "Statehold itself" for rename in renames})
    return (
        f"{', '.join(holders)} had {'this name' if len(renames) == 1 else 'these names'} first: {shown}{more}; "
        f"prefix in [services.{service}] names them otherwise"
    )


def own_prefix(service: str) -> str:
    """Return the prefix that tells the tools of a service from others of the same name."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", service) + "_"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool of the list: the service that its calls go to, and the session argument that we added."""

    name: str
    service: str
    tool: str
    definition: JSON
    argument: str
    """The name of our session argument in its schema."""


class Catalog:
    """The tools of all services for one way of naming a session. Immutable; a changed service makes a new one."""

    def __init__(
        self,
        offers: Iterable[Offer],
        own: Iterable[JSON] = (),
        *,
        reserved: Iterable[str] = (),
        naming: Naming = "explicit",
        header: bool = False,
        address: Callable[[str, str], str] | None = None,
    ) -> None:
        """Merge the offers after our own tools.

        `address` returns the URI by which callers read the page of an MCP App, of its service and the URI there; None leaves
        it as it is.

        The first holder of a name keeps it: ours, then those of the services in the given order. A later tool of that name
        gets its service's name in front. Names in `reserved` are those of our tools too, although they are not listed here,
        so that a tool has one name in every way of naming sessions.
        """
        self.own: dict[str, JSON] = {tool["name"]: tool for tool in own}
        self.entries: dict[str, Entry] = {}
        self.renames: list[Rename] = []
        self._reserved = self.own.keys() | set(reserved)
        self._address = address
        for offer in offers:
            for spec, name in self._named(offer):
                self._add(offer, spec, name, naming, header)
        self.definitions: list[JSON] = [
            *self.own.values(),
            *(entry.definition for entry in self.entries.values()),
        ]
        self.legacy_definitions: list[JSON] = [_for_legacy(tool) for tool in self.definitions]
        """The same for clients before 2026-07-28, which know output schemas of objects only."""
        self._schemas = {tool["name"]: tool["inputSchema"] for tool in self.definitions}
        self.with_headers = frozenset(
            name for name, schema in self._schemas.items() if x_mcp_header_map(schema)
        )
        """The tools that mirror arguments in `Mcp-Param-*` headers."""

    def renames_by_service(self) -> dict[str, str]:
        """Return a line for each service with renamed tools; see describe_renames()."""
        by_service = itertools.groupby(self.renames, key=lambda rename: rename.service)
        return {service: describe_renames(list(renames)) for service, renames in by_service}

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, None when there is no such tool."""
        return self._schemas.get(name)

    def _named(self, offer: Offer) -> list[tuple[ToolSpec, str]]:
        """Return the tools of a service with their names in the list, those whose name is free first to choose."""
        _warn_of_unknown(offer)
        chosen = offer.chosen()
        wanted = {spec.name: offer.prefix + spec.name for spec in chosen}
        used = self._reserved | self.entries.keys()
        free = used | set(wanted.values())
        found: list[tuple[ToolSpec, str]] = []
        for spec in chosen:
            name = wanted[spec.name]
            if name in used:
                holder = self.entries[name].service if name in self.entries else None
                name = _free_name(own_prefix(offer.service) + name, free)
                free.add(name)
                self.renames.append(Rename(offer.service, wanted[spec.name], name, holder))
            found.append((spec, name))
        return found

    def _add(self, offer: Offer, spec: ToolSpec, name: str, naming: Naming, header: bool) -> None:
        definition = sanitised({**spec.definition, "name": name}, offer.service)
        if definition is None:
            return
        meta: JSON = definition.get("_meta") or {}
        if self._address is not None:
            meta = with_app_page(meta, partial(self._address, offer.service))
        definition["_meta"] = {**meta, SERVICE_META: offer.service}
        argument = _inject(definition, naming, header)
        self.entries[name] = Entry(name, offer.service, spec.name, definition, argument)


def _for_legacy(definition: JSON) -> JSON:
    # Check only the type: sanitised() checked the schema, and checking one takes milliseconds.
    output: JSON | None = definition.get("outputSchema")
    if output is None or output.get("type") == "object":
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}


def _free_name(name: str, used: Container[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(found for found in itertools.chain((name,), numbered) if found not in used)


def _warn_of_unknown(offer: Offer) -> None:
    known = {spec.name for spec in offer.tools}
    for name in {*(offer.include or ()), *offer.exclude} - known:
        logger.warning("service %s has no tool %r to include or exclude", offer.service, name)


def sanitised(definition: JSON, service: str) -> JSON | None:
    """Return a tool definition that every client accepts, repaired where that is possible; None drops the tool.

    One broken tool would otherwise make the whole list invalid for every client.
    """
    found = copy.deepcopy(definition)
    name = found.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        logger.warning("service %s: tool %.100r dropped: not a tool name", service, name)
        return None
    found["inputSchema"], whole = sound_object_schema(found.get("inputSchema"))
    if not whole:
        logger.warning(
            "service %s: input schema of %s is invalid; what is valid of it is kept", service, name
        )
    spell_out_booleans(found["inputSchema"])
    output = found.get("outputSchema")
    if output is not None and not (isinstance(output, dict) and is_schema(output)):
        logger.warning("service %s: output schema of %s dropped: invalid", service, name)
        del found["outputSchema"]
    # Tasks of 2025-11-25 do not exist behind a session; the field alone would promise them.
    found.pop("execution", None)
    broken = _broken(found)
    for part in broken & _OPTIONAL:
        logger.warning("service %s: %s of tool %s dropped: malformed", service, part, name)
        del found[part]
    if broken - _OPTIONAL:
        logger.warning("service %s: tool %s dropped: malformed", service, name)
        return None
    return found


_OPTIONAL = frozenset({"annotations", "icons", "title", "description", "_meta"})
"""Members of a definition that are removed when they are broken; the tool works without them."""


def _broken(definition: JSON) -> set[str]:
    """Return the names of the parts of a definition that no client would accept."""
    try:
        Tool.model_validate(definition, by_name=False)
    except ValidationError as error:
        return {str(found["loc"][0]) for found in error.errors(include_input=False)}
    return set()


def _inject(definition: JSON, naming: Naming, header: bool) -> str:
    """Put the session argument in front of a tool's own; return its name."""
    schema = definition["inputSchema"]
    own: JSON = schema.get("properties") or {}
    argument = free_argument(argument_names(schema))
    if header:
        _drop_header(own, "Session-Id")
    if naming == "pinned":
        return argument
    admit_argument(schema, argument)
    schema["properties"] = {argument: session_schema(header), **own}
    if naming == "explicit":
        schema["required"] = [argument, *schema.get("required", [])]
    return argument


def free_argument(taken: Container[str]) -> str:
    """Return the name of our session argument beside arguments of these names."""
    if SESSION_ARGUMENT not in taken:
        return SESSION_ARGUMENT
    if OTHER_ARGUMENT not in taken:
        return OTHER_ARGUMENT
    numbered = (f"{OTHER_ARGUMENT}_{number}" for number in itertools.count(2))
    return next(name for name in numbered if name not in taken)


def session_schema(header: bool) -> JSON:
    """Return the schema of the session argument: a plain string, since clients drop a tool whose annotated parameter is
    optional or a union (SEP-2243)."""
    found: JSON = {
        "type": "string",
        "description": "The session to run in: the session_id that session_create returned.",
    }
    if header:
        found["x-mcp-header"] = "Session-Id"
    return found


def _drop_header(properties: JSON, header: str) -> None:
    for schema in properties.values():
        if isinstance(schema, dict):
            annotated = cast("JSON", schema)
            if str(annotated.get("x-mcp-header", "")).lower() == header.lower():
                del annotated["x-mcp-header"]


__all__ = [
    "OTHER_ARGUMENT",
    "SESSION_ARGUMENT",
    "Catalog",
    "Entry",
    "Naming",
    "Offer",
    "Rename",
    "describe_renames",
    "free_argument",
    "own_prefix",
    "sanitised",
    "session_schema",
]
