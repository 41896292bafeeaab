"""The merged tool list: every tool of every service with a session argument in front, in an order that does not change.

The list depends on the configuration and on how the session is named, never on which sessions are open (2026-07-28,
server/tools: a list must not vary per connection or as a side effect of other requests).
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcp.shared.inbound import x_mcp_header_map
from mcp_types import Tool
from pydantic import ValidationError

from ..sessions.services import JSON, ToolSpec
from .own import Naming
from .schema import argument_names, is_object_schema, sound_object_schema

logger = logging.getLogger("statehold.catalog")

SESSION_ARGUMENT = "session_id"
OTHER_ARGUMENT = "statehold_session_id"
"""What ours is called where a tool has a `session_id` of its own."""

SERVICE_META = "statehold/service"
"""Where the list says of which service a tool is."""

_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")


class CatalogError(Exception):
    """Raised at start when two tools would have the same name; says which and what to do."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one service contributes: its tools, filtered and renamed as configured."""

    service: str
    tools: Sequence[ToolSpec]
    prefix: str = ""
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool of the list: where a call of it goes and what of its arguments is ours."""

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
        naming: Naming = "explicit",
        header: bool = False,
    ) -> None:
        """Merge the offers after our own tools.

        Raises:
            CatalogError: a name stands for two tools.
        """
        self.own: dict[str, JSON] = {tool["name"]: tool for tool in own}
        self.entries: dict[str, Entry] = {}
        for offer in offers:
            for spec in _chosen(offer):
                self._add(offer, spec, naming, header)
        self.definitions: list[JSON] = [
            *self.own.values(),
            *(entry.definition for entry in self.entries.values()),
        ]
        self._schemas = {tool["name"]: tool["inputSchema"] for tool in self.definitions}
        self.with_headers = frozenset(
            name for name, schema in self._schemas.items() if x_mcp_header_map(schema)
        )
        """The tools that mirror arguments in `Mcp-Param-*` headers."""

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, None when there is no such tool."""
        return self._schemas.get(name)

    def _add(self, offer: Offer, spec: ToolSpec, naming: Naming, header: bool) -> None:
        name = offer.prefix + spec.name
        definition = sanitised({**spec.definition, "name": name}, offer.service)
        if definition is None:
            return
        definition["_meta"] = {**(definition.get("_meta") or {}), SERVICE_META: offer.service}
        taken = self.entries.get(name)
        if taken is not None or name in self.own:
            other = taken.service if taken is not None else "Statehold itself"
            raise CatalogError(
                f"the tool {name!r} of service {offer.service!r} has the name of a tool of {other!r}: "
                f"give one of them a prefix, for example [services.{offer.service}] prefix = "
                f'"{offer.service}_"'
            )
        argument = _inject(definition, naming, header)
        self.entries[name] = Entry(name, offer.service, spec.name, definition, argument)


def _chosen(offer: Offer) -> Iterable[ToolSpec]:
    known = {spec.name for spec in offer.tools}
    for name in {*(offer.include or ()), *offer.exclude} - known:
        logger.warning("service %s has no tool %r to include or exclude", offer.service, name)
    for spec in offer.tools:
        if spec.name not in offer.exclude and (offer.include is None or spec.name in offer.include):
            yield spec


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
    output = found.get("outputSchema")
    if output is not None and not is_object_schema(output):
        logger.warning(
            "service %s: output schema of %s dropped: its root is no object", service, name
        )
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
"""What a tool can do without."""


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
    "CatalogError",
    "Entry",
    "Naming",
    "Offer",
    "free_argument",
    "sanitised",
    "session_schema",
]
