"""The merged tool list: every tool of every service with a session argument in front, in an order that does not change.

The list depends on the configuration and on how the session is named, never on which sessions are open (2026-07-28,
server/tools: a list must not vary per connection or as a side effect of other requests).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

from mcp.shared.inbound import x_mcp_header_map
from mcp_types import Tool
from pydantic import ValidationError

from ..sessions.json_codec import JSON
from ..sessions.services import ToolSpec
from .argument_schema import (
    allow_argument,
    argument_names,
    copy_json,
    is_schema,
    repair_object_schema,
    repair_schema,
    spell_out_booleans,
)
from .definition import Naming
from .tool_names import (
    Alias,
    Rename,
    describe_aliases,
    describe_renames_by_service,
    distinct_names,
    has_alias,
    listed_name,
    numbered_names,
    own_prefix,
    with_original_name,
)

logger = logging.getLogger("statehold.catalog")

SESSION_ARGUMENT = "session_id"
FALLBACK_ARGUMENT = "statehold_session_id"
"""The name of our session argument in a tool that has its own `session_id`."""

SERVICE_META = "statehold/service"
"""The `_meta` key with which a list names the service of a tool, if the request for it has the key with the value true."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The contribution of one service to the list: its tools, filtered and renamed as configured."""

    service: str
    tools: Sequence[ToolSpec]
    prefix: str = ""
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    is_own: bool = False
    """Whether Statehold itself defines the tools, so that their definitions need no validation."""

    def may_have(self, name: str) -> bool:
        """Whether the configuration allows a tool of this service to have `name` in the list."""
        prefixes = (self.prefix, own_prefix(self.service) + self.prefix)
        return any(self._may_have(name, prefix) for prefix in prefixes)

    def may_have_prompt(self, name: str) -> bool:
        """Whether the configuration allows a prompt of this service to have `name` in the list."""
        return name.startswith((self.prefix, own_prefix(self.service) + self.prefix))

    def _may_have(self, name: str, prefix: str) -> bool:
        if any(listed_name(tool, prefix) == name for tool in self.exclude):
            return False
        if self.include is not None:
            return any(listed_name(tool, prefix) == name for tool in self.include)
        return name.startswith(prefix)

    def _selects(self, tool: str) -> bool:
        return tool not in self.exclude and (self.include is None or tool in self.include)

    def selected_tools(self) -> list[ToolSpec]:
        return [spec for spec in self.tools if self._selects(spec.name)]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One tool of the list: the service that receives its calls, and the session argument that we added."""

    name: str
    service: str
    tool: str
    definition: JSON
    session_argument: str
    """The name of our session argument in its schema."""
    accepts_session_id: bool = False
    """Whether `session_id` names the session too, because the tool has no such argument: its service had none before."""


class Catalog:
    """The tools of all services for one way of naming a session. Immutable; a changed service makes a new one."""

    def __init__(
        self,
        offers: Iterable[Offer],
        own_tools: Iterable[JSON] = (),
        *,
        reserved_names: Iterable[str] = (),
        naming: Naming = "explicit",
        header: bool = False,
        address: Callable[[str, str], str] | None = None,
        holders: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Merge the offers after our own tools.

        `address` maps a service and the URI of an MCP App page there to the URI under which callers read the page. None
        leaves the URIs as they are.

        The first tool with a name keeps it: our own tools come first, then the services in the given order. A later tool of
        the same name gets its service's name as a prefix. `holders` are the services that had a name before: no other
        service gets it, whatever the order, even if they do not use it now. `reserved_names` are names of our own tools that
        may not be listed here. They are never given away, so a tool has the same name for every way of naming sessions.
        """
        self.own_definitions: dict[str, JSON] = {tool["name"]: tool for tool in own_tools}
        self.entries: dict[str, CatalogEntry] = {}
        self.renames: list[Rename] = []
        self.aliases: dict[str, list[Alias]] = {}
        """The tools whose own names clients would reject, by service."""
        self.session_arguments: dict[str, str] = {}
        """The name of our session argument in all tools of a service, by service."""
        self._reserved_names = self.own_definitions.keys() | set(reserved_names)
        self._address = address
        self._holders = holders
        for offer in offers:
            self._add(offer, naming, header)
        self.definitions: list[JSON] = [
            *self.own_definitions.values(),
            *(entry.definition for entry in self.entries.values()),
        ]
        self.legacy_definitions: list[JSON] = [_for_legacy(tool) for tool in self.definitions]
        """The same for clients before 2026-07-28, which accept only output schemas of type object."""
        self.schemas: Mapping[str, Mapping[str, Any]] = {
            tool["name"]: tool["inputSchema"] for tool in self.definitions
        }
        """The input schemas of the tools."""
        self.with_headers = frozenset(
            name for name, schema in self.schemas.items() if x_mcp_header_map(schema)
        )
        """The tools that mirror arguments in `Mcp-Param-*` headers."""

    def renames_by_service(self, prompt_renames: Sequence[Rename] = ()) -> dict[str, str]:
        """Return a line for each service with renamed tools or prompts; see describe_renames() and describe_aliases()."""
        lines = describe_renames_by_service([*self.renames, *prompt_renames])
        for service, aliases in self.aliases.items():
            parts = (lines.get(service), describe_aliases(aliases))
            lines[service] = "; ".join(part for part in parts if part is not None)
        return lines

    def with_services(self, definitions: Iterable[JSON]) -> list[JSON]:
        """Return definitions of the list in which the `_meta` of each tool of a service names that service."""
        return [
            {**tool, "_meta": {**(tool.get("_meta") or {}), SERVICE_META: entry.service}}
            if (entry := self.entries.get(tool["name"])) is not None
            else tool
            for tool in definitions
        ]

    def _choose_names(self, offer: Offer) -> dict[str, str]:
        """Return the name in the list of each tool of a service. Record the renamed ones."""
        _warn_of_unknown(offer)
        wanted_names = _prefixed_names(offer, offer.selected_tools())
        holders = {
            name: holder for name, holder in self._holders.items() if holder != offer.service
        }
        taken_names = self._reserved_names | self.entries.keys() | holders.keys()
        prefix = own_prefix(offer.service) + offer.prefix
        names = distinct_names(wanted_names, taken_names, lambda tool: listed_name(tool, prefix))
        for tool, name in names.items():
            wanted_name = wanted_names[tool]
            if name != wanted_name:
                entry = self.entries.get(wanted_name)
                holder = holders.get(wanted_name) if entry is None else entry.service
                self.renames.append(Rename(offer.service, wanted_name, name, holder))
            if has_alias(tool, offer.prefix):
                self.aliases.setdefault(offer.service, []).append(Alias(tool, name))
        return names

    def _add(self, offer: Offer, naming: Naming, header: bool) -> None:
        names = self._choose_names(offer)
        definitions: list[tuple[ToolSpec, JSON]] = []
        used_arguments: set[str] = set()
        for spec in offer.selected_tools():
            definition = self._define(offer, spec, names[spec.name])
            if definition is not None:
                definitions.append((spec, definition))
                used_arguments |= argument_names(definition["inputSchema"])
        argument = session_argument_name(used_arguments)
        self.session_arguments[offer.service] = argument
        for spec, definition in definitions:
            schema, name = definition["inputSchema"], definition["name"]
            # A header for proxies repeats our argument alone.
            has_other_name = not header and argument != SESSION_ARGUMENT
            accepts = has_other_name and SESSION_ARGUMENT not in argument_names(schema)
            _add_session_argument(schema, argument, naming, header)
            self.entries[name] = CatalogEntry(
                name, offer.service, spec.name, definition, argument, accepts
            )

    def _define(self, offer: Offer, spec: ToolSpec, name: str) -> JSON | None:
        """Return the definition of a tool in the list without the session argument, None if the tool must be dropped."""
        definition: JSON | None = {**spec.definition, "name": name}
        definition = (
            copy_json(definition) if offer.is_own else repair_definition(definition, offer.service)
        )
        if definition is None:
            return None
        if has_alias(spec.name, offer.prefix):
            definition = with_original_name(definition, spec.name)
        meta: JSON = definition.get("_meta") or {}
        if self._address is not None:
            meta = with_app_page(meta, partial(self._address, offer.service))
        if meta:
            definition["_meta"] = meta
        return definition


def _for_legacy(definition: JSON) -> JSON:
    # repair_definition() has validated the schema, which takes milliseconds, so look only at its type.
    output: JSON | None = definition.get("outputSchema")
    if output is None or output.get("type") == "object":
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}


def _prefixed_names(offer: Offer, specs: Sequence[ToolSpec]) -> dict[str, str]:
    """Return the name in the list of each tool of a service, as far as the service alone decides it."""
    names: dict[str, str] = {}
    used_names = {
        offer.prefix + spec.name for spec in specs if not has_alias(spec.name, offer.prefix)
    }
    for spec in specs:
        name = listed_name(spec.name, offer.prefix)
        if has_alias(spec.name, offer.prefix):
            name = next(each for each in numbered_names(name) if each not in used_names)
            used_names.add(name)
        names[spec.name] = name
    return names


def _warn_of_unknown(offer: Offer) -> None:
    known = {spec.name for spec in offer.tools}
    for name in {*(offer.include or ()), *offer.exclude} - known:
        logger.warning("service %s has no tool %r to include or exclude", offer.service, name)


def repair_definition(definition: JSON, service: str) -> JSON | None:
    """Return the definition with its malformed parts repaired or removed, or None if the tool must be dropped.

    A client rejects the whole list if one tool in it is malformed.
    """
    name = definition.get("name")
    if not isinstance(name, str) or has_alias(name, ""):
        logger.warning("service %s: tool %.100r dropped: not a tool name", service, name)
        return None
    repaired: JSON = {}
    for part, value in definition.items():
        try:
            repaired[part] = copy_json(value)
        except RecursionError:
            logger.warning("service %s: %.100r of %s dropped: too deep", service, part, name)
    repaired["inputSchema"], is_valid = repair_object_schema(repaired.get("inputSchema"))
    if not is_valid:
        logger.warning(
            "service %s: input schema of %s is invalid; its valid parts are kept", service, name
        )
    spell_out_booleans(repaired["inputSchema"])
    _repair_output_schema(repaired, service)
    # The field announces tasks of 2025-11-25, which sessions do not support.
    repaired.pop("execution", None)
    malformed = _malformed_members(repaired)
    for part in malformed & _OPTIONAL_MEMBERS:
        logger.warning("service %s: %s of tool %s dropped: malformed", service, part, name)
        del repaired[part]
    if malformed - _OPTIONAL_MEMBERS:
        logger.warning("service %s: tool %s dropped: malformed", service, name)
        return None
    return repaired


def _repair_output_schema(definition: JSON, service: str) -> None:
    output: object = definition.pop("outputSchema", None)
    if output is None:
        return
    schema = cast("JSON", output) if isinstance(output, dict) else None
    is_valid = schema is not None and is_schema(schema)
    repaired = schema if is_valid else repair_schema(schema)
    if repaired is None:
        logger.warning(
            "service %s: output schema of %s dropped: invalid", service, definition["name"]
        )
        return
    definition["outputSchema"] = repaired
    if not is_valid:
        logger.warning(
            "service %s: output schema of %s is invalid; its valid parts are kept",
            service,
            definition["name"],
        )


_OPTIONAL_MEMBERS = frozenset({"annotations", "icons", "title", "description", "_meta"})
"""Members of a definition that are removed when malformed; the tool works without them."""


def _malformed_members(definition: JSON) -> set[str]:
    """Return the names of the members of a definition that clients would reject."""
    try:
        Tool.model_validate(definition, by_name=False)
    except ValidationError as error:
        return {str(detail["loc"][0]) for detail in error.errors(include_input=False)}
    return set()


def _add_session_argument(schema: JSON, argument: str, naming: Naming, header: bool) -> None:
    """Add the session argument as the first property of an input schema, unless the session is pinned."""
    # Some clients fail with all tools if one has no properties.
    properties: JSON = schema.get("properties") or {}
    schema["properties"] = properties
    if header:
        _drop_header(properties, "Session-Id")
    if naming in ("pinned", "command"):
        return
    allow_argument(schema, argument)
    schema["properties"] = {argument: session_argument_schema(header), **properties}
    if naming == "explicit":
        schema["required"] = [argument, *schema.get("required", [])]


def session_argument_name(used_names: Container[str]) -> str:
    """Return a name for our session argument that differs from `used_names`."""
    if SESSION_ARGUMENT not in used_names:
        return SESSION_ARGUMENT
    return next(name for name in numbered_names(FALLBACK_ARGUMENT) if name not in used_names)


def session_argument_schema(header: bool) -> JSON:
    """Return the schema of the session argument: a plain string, since clients drop a tool whose annotated parameter is
    optional or a union (SEP-2243)."""
    schema: JSON = {
        "type": "string",
        "description": "From session_create",
    }
    if header:
        schema["x-mcp-header"] = "Session-Id"
    return schema


def _drop_header(properties: JSON, header: str) -> None:
    for schema in properties.values():
        if isinstance(schema, dict):
            fields = cast("JSON", schema)
            if str(fields.get("x-mcp-header", "")).lower() == header.lower():
                del fields["x-mcp-header"]


OLD_KEY: Final = "ui/resourceUri"
"""The key that older servers use. Newer servers often set it in addition to `ui.resourceUri`."""


def app_page(meta: object) -> str | None:
    """Return the page URI in a `_meta`, None if there is none."""
    if not isinstance(meta, dict):
        return None
    fields = cast("JSON", meta)
    app: object = fields.get("ui")
    uri: object = cast("JSON", app).get("resourceUri") if isinstance(app, dict) else None
    uri = fields.get(OLD_KEY) if uri is None else uri
    return uri if isinstance(uri, str) else None


def with_app_page(meta: Mapping[str, Any], address: Callable[[str], str]) -> JSON:
    """Return a copy of a `_meta` in which `address` has replaced the page URI, if there is one."""
    uri, renamed = app_page(meta), dict(meta)
    if uri is None:
        return renamed
    if OLD_KEY in renamed:
        renamed[OLD_KEY] = address(uri)
    if isinstance(renamed.get("ui"), dict):
        renamed["ui"] = {**renamed["ui"], "resourceUri": address(uri)}
    return renamed
