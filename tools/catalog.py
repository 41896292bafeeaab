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
from urllib.parse import unquote

from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from mcp.shared.inbound import x_mcp_header_map
from mcp_types import Tool
from pydantic import ValidationError

from ..sessions.services import JSON, ToolSpec
from .own import Naming

logger = logging.getLogger("statehold.catalog")

SESSION_ARGUMENT = "session_id"
OTHER_ARGUMENT = "statehold_session_id"
"""What ours is called where a tool has a `session_id` of its own."""

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
    found["inputSchema"] = _object_schema(found.get("inputSchema"), service, name)
    output = found.get("outputSchema")
    if output is not None and not _is_object_schema(output):
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


def _is_object_schema(schema: object) -> bool:
    return (
        isinstance(schema, dict)
        and cast("JSON", schema).get("type") == "object"
        and _is_schema(cast("JSON", schema))
    )


def _is_schema(schema: Any) -> bool:
    """Tell whether a schema is valid in the dialect it names, or in one of those that servers write without naming it."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    found = cast("JSON", schema)
    dialects = [Draft202012Validator, Draft7Validator, Draft4Validator]
    if isinstance(found.get("$schema"), str):
        dialects = [validator_for(found, default=Draft202012Validator)]
    return any(_follows(found, dialect) for dialect in dialects)


def _follows(schema: object, dialect: Any) -> bool:
    try:
        dialect.check_schema(schema)
    except SchemaError:
        return False
    return True


def _object_schema(schema: object, service: str, name: str) -> JSON:
    if not isinstance(schema, dict):
        logger.warning(
            "service %s: input schema of %s is no schema; any object is accepted", service, name
        )
        return {"type": "object"}
    found = cast("JSON", schema)
    found.setdefault("type", "object")
    if isinstance(found.get("required"), list):
        found["required"] = _texts(found["required"])
    if _is_object_schema(found):
        return found
    logger.warning(
        "service %s: input schema of %s is invalid; what is valid of it is kept", service, name
    )
    return _sound_parts(found)


def _sound_parts(schema: JSON) -> JSON:
    """Return the arguments of an invalid schema: those with a valid schema of their own, the others as anything."""
    own = schema.get("properties")
    properties: JSON = cast("JSON", own) if isinstance(own, dict) else {}
    dialect = {key: schema[key] for key in ("$schema",) if isinstance(schema.get(key), str)}
    anything: JSON = {}
    kept: JSON = {
        name: part if _is_schema({**dialect, "allOf": [part]}) else anything
        for name, part in properties.items()
    }
    found: JSON = {**dialect, "type": "object"}
    if kept:
        found["properties"] = kept
    if required := _texts(schema.get("required")):
        found["required"] = required
    for key in ("$defs", "definitions"):
        if key in schema and _is_schema({**dialect, key: schema[key]}):
            found[key] = schema[key]
    return found if _is_schema(found) else {"type": "object"}


def _inject(definition: JSON, naming: Naming, header: bool) -> str:
    """Put the session argument in front of a tool's own; return its name."""
    schema = definition["inputSchema"]
    own: JSON = schema.get("properties") or {}
    argument = free_argument(_argument_names(schema))
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


def _argument_names(root: JSON) -> set[str]:
    """Return the names of all arguments a schema speaks of, in its root and in what the root refers to."""
    names: set[str] = set()
    left: list[object] = [root]
    seen: set[int] = set()
    while left:
        found = left.pop()
        if not isinstance(found, dict) or id(found) in seen:  # pyright: ignore[reportUnknownArgumentType]
            continue
        schema = cast("JSON", found)
        seen.add(id(schema))
        properties, required = schema.get("properties"), schema.get("required")
        names.update(cast("JSON", properties) if isinstance(properties, dict) else ())
        names.update(_texts(required))
        left += [schema.get(key) for key in ("if", "then", "else")]
        for key in ("allOf", "anyOf", "oneOf"):
            parts = schema.get(key)
            left += cast("list[object]", parts) if isinstance(parts, list) else ()
        left.append(_referred(root, schema.get("$ref")))
    return names


def _referred(root: JSON, reference: object) -> object:
    """Return what a reference within a schema leads to, None when that is not clear."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        if not isinstance(found, dict):
            return None
        found = cast("JSON", found).get(part.replace("~1", "/").replace("~0", "~"))
    return found


def _texts(values: object) -> list[str]:
    """Return the strings of a list, each once."""
    items = cast("list[object]", values) if isinstance(values, list) else []
    return list(dict.fromkeys(item for item in items if isinstance(item, str)))


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
