"""The probe of an upstream, which lists its tools, prompts and events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, cast

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import Prompt
from pydantic import ValidationError

from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from .config import Transport
from .connection import UpstreamConnection
from .errors import UpstreamMisbehaved, UpstreamRefused
from .negotiation import EVENTS, Peer
from .paging import Paging
from .recipe import InternalContext
from .transports.http_errors import HttpRefused

logger = logging.getLogger("statehold.upstream")

ResultT = TypeVar("ResultT")
Work: TypeAlias = Callable[[UpstreamConnection], Awaitable[ResultT]]
"""Something that is done over one connection."""

HeaderMap: TypeAlias = Mapping[tuple[str, ...], str]
"""The `Mcp-Param-*` header of each argument that has one."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of a probe: the upstream's handshake, tools, prompts and events."""

    peer: Peer
    tools: tuple[ToolSpec, ...]
    prompts: tuple[JSON, ...] = ()
    transport: Transport | None = None
    """The transport that worked."""
    events: tuple[JSON, ...] = ()
    """The events that it can be polled for (SEP-3415)."""

    @property
    def extensions(self) -> JSON:
        """The settings of each extension that the upstream declares."""
        return _extensions_in(self.peer.capabilities)

    def declaring(self, era: str, capabilities: object) -> Profile:
        """Return it with what a later connection declares in addition; one of another era says nothing about it."""
        added = cast("JSON", capabilities) if isinstance(capabilities, dict) else {}
        both = {**added, **self.peer.capabilities}
        if extensions := {**_extensions_in(added), **self.extensions}:
            both["extensions"] = extensions
        if era != self.peer.era or both == self.peer.capabilities:
            return self
        return replace(self, peer=replace(self.peer, capabilities=both))

    def after(self, known: Profile | None, transport: Transport) -> Profile:
        """Return it as the successor of `known`. Another version of the server is asked again which era it speaks."""
        peer = self.peer
        if known is not None and known.peer.era == peer.era and known.peer.info != peer.info:
            peer = replace(peer, era_reason="")
        return replace(self, peer=peer, transport=transport)

    def check(self, service: str, transport: Transport, seconds: float) -> Check:
        """Return the report of this probe, which took some seconds."""
        peer = self.peer
        return Check(
            service,
            transport,
            True,
            seconds,
            protocol_version=peer.version,
            era=peer.era,
            era_reason=peer.era_reason,
            server=peer.info,
            tools=len(self.tools),
        )


@dataclass(frozen=True, slots=True)
class Check:
    """The report of one probe, for `statehold services check`."""

    service: str
    transport: str
    ok: bool
    seconds: float
    error: str | None = None
    protocol_version: str | None = None
    era: str | None = None
    era_reason: str = ""
    server: JSON = field(default_factory=dict[str, Any])
    tools: int = 0
    renamed: str | None = None
    """A line about its tools that have other names in the list; see describe_renames()."""
    shared: str | None = None
    """A line about what two sessions of it share; see describe_sharing()."""
    unapproved: str | None = None
    """A line about the patterns of `approve` that name none of its tools."""


def _extensions_in(capabilities: JSON) -> JSON:
    declared: object = capabilities.get("extensions")
    extensions = cast("JSON", declared) if isinstance(declared, dict) else {}
    return {name: value for name, value in extensions.items() if isinstance(value, dict)}


async def probe_upstream(connection: UpstreamConnection) -> Profile:
    """List the tools, prompts and events of an upstream and return its profile.

    Raises:
        UpstreamMisbehaved, UpstreamRefused, OutcomeUnknown, ConnectionLost: The tools could not be listed.
    """
    announced: list[str] = []

    def note(_: UpstreamConnection, method: str, params: JSON) -> None:
        announced.append(method)

    connection.on_changed = note
    tools, prompts = await list_tools(connection), await list_prompts(connection)
    if announced:
        # Some servers add tools once they are initialized.
        tools, prompts = await list_tools(connection), await list_prompts(connection)
    return Profile(connection.peer, tools, prompts, events=await _list_events(connection))


async def list_items(
    connection: UpstreamConnection,
    method: str,
    key: str,
    on_page: Callable[[JSON], None] | None = None,
) -> list[JSON]:
    """Return the items of all pages of a list; items that are not objects are skipped. `on_page` gets each page.

    A list that fails after its first page, or does not end, keeps the items that it brought; see Paging.
    """
    paging = Paging(connection.service, method)
    items: list[JSON] = []
    while paging.is_open:
        page: JSON = {}
        try:
            with paging.next_page():
                page = await connection.request(method, paging.params, InternalContext())
            if not paging.is_open:
                break
            page_items: object = page.get(key)
            if not isinstance(page_items, list):
                raise UpstreamMisbehaved(connection.service, f"{method} answered without {key}")
        except (UpstreamRefused, UpstreamMisbehaved, HttpRefused) as error:
            if not paging.has_begun:
                raise
            paging.cut(error.message)
            break
        items += paging.add(cast("list[object]", page_items), page.get("nextCursor"))
        if on_page is not None:
            on_page(page)
    return items


async def list_tools(connection: UpstreamConnection) -> tuple[ToolSpec, ...]:
    """Return the tools that a connection lists now. Raises like probe_upstream()."""
    if "tools" not in connection.peer.capabilities:
        try:
            definitions = await list_items(connection, "tools/list", "tools")
        except (UpstreamRefused, HttpRefused):
            return ()
    else:
        definitions = await list_items(connection, "tools/list", "tools")
    specs: dict[str, ToolSpec] = {}
    for definition in definitions:
        name = definition.get("name")
        if isinstance(name, str) and name:
            specs.setdefault(name, ToolSpec(name, definition))
        else:
            logger.warning("%s lists a tool without a name", connection.service)
    return tuple(specs.values())


async def list_prompts(connection: UpstreamConnection) -> tuple[JSON, ...]:
    """Return the prompts that a connection lists now; none if it refuses, because its tools are still usable."""
    if "prompts" not in connection.peer.capabilities:
        return ()
    prompts = await _list_others(connection, "prompts")
    return tuple(prompt for prompt in prompts if _is_prompt(prompt, connection.service))


async def _list_events(connection: UpstreamConnection) -> tuple[JSON, ...]:
    declared = connection.peer.capabilities
    if "events" not in declared and EVENTS not in _extensions_in(declared):
        return ()
    return tuple(filter(_can_be_polled, await _list_others(connection, "events")))


async def _list_others(connection: UpstreamConnection, kind: str) -> list[JSON]:
    try:
        return await list_items(connection, f"{kind}/list", kind)
    except (UpstreamRefused, UpstreamMisbehaved, HttpRefused) as error:
        logger.warning("%s does not list its %s: %s", connection.service, kind, error)
        return []


def _can_be_polled(event: JSON) -> bool:
    """Whether it is well-formed, as far as it is read here, and offers polls."""
    schema, modes = event.get("inputSchema"), event.get("delivery")
    members = cast("JSON", schema).get("properties", {}) if isinstance(schema, dict) else None
    is_valid = isinstance(event.get("name"), str) and isinstance(members, dict)
    return is_valid and isinstance(modes, list) and "poll" in modes


def _is_prompt(prompt: JSON, service: str) -> bool:
    """Whether clients accept a prompt; they reject a whole list with one malformed prompt."""
    try:
        Prompt.model_validate(prompt, by_name=False)
    except ValidationError:
        logger.warning("%s lists a malformed prompt", service)
        return False
    return True


def header_map(spec: ToolSpec) -> HeaderMap:
    """Return the headers that a tool declares for its arguments; none if its annotations are invalid."""
    schema = spec.definition.get("inputSchema")
    if not isinstance(schema, dict) or find_invalid_x_mcp_header(schema) is not None:
        return {}
    return x_mcp_header_map(schema)
