"""A whole Statehold inside this process as a transport: without a child process, a port or network traffic."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import modern_on_request
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext

from ...server.cluster.owner import Owner
from ...server.config.load import load
from ...server.config.model import TOOLSETS, Config
from ...server.gateway.gateway import Gateway
from ...server.process.gateway import create_gateway, hold_open
from ...server.protocol.server import StateholdServer
from ...server.sdk.access import RequestContext
from ...sessions.errors import InvalidArgument
from ...sessions.records import LOCAL, Principal
from .base import JsonRpcError, ProgressCallback, TransportBroken
from .http import encode, report_progress
from .owner import ContextOwner

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON

_CONTEXT: Final = TransportContext(kind="embedded", can_send_request=False)
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"


class EmbeddedServer(StateholdServer):
    """The MCP server of a process whose only caller is the program around it."""

    def principal(self, ctx: RequestContext) -> Principal:
        # The program may be handling an authenticated request of its own; that token does not concern this server.
        return LOCAL


@dataclass
class EmbeddedRequest:
    """One request and its progress callback; the SDK's DispatchContext of it."""

    request_id: int
    progress_callback: ProgressCallback | None
    transport: TransportContext = _CONTEXT
    message_metadata: None = None
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if method == "notifications/progress" and self.progress_callback is not None:
            await report_progress(self.progress_callback, dict(params or {}))

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        raise NoBackChannelError(method)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        if self.progress_callback is not None:
            await report_progress(
                self.progress_callback, {"progress": progress, "total": total, "message": message}
            )


class EmbeddedTransport:
    """The transport to an embedded Statehold, which lives from open() to aclose()."""

    breaks = False

    def __init__(self, config: Config) -> None:
        self.config = config
        self.gateway: Gateway | None = None
        self._numbers = itertools.count(1)
        self._owner = ContextOwner(open_server(config))
        self._opening = anyio.Lock()
        self._server: EmbeddedServer | None = None
        self._closed = False

    async def open(self) -> None:
        async with self._opening:
            if self._closed:
                raise TransportBroken("it was closed", sent=False)
            if self._server is None:
                self.gateway, self._server = await self._owner.start()
                self._handle = modern_on_request(self._server, {})

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._opening:
                self._closed = True
                if self._server is not None:
                    self._server.stop_listening()
                    self._server.open_calls.abandon()
                await self._owner.stop()

    async def add_service(self, name: str, spec: Mapping[str, Any]) -> JSON:
        """Offer one more service from now on, and return its status; see Gateway.add_service."""
        await self.open()
        assert self.gateway is not None
        flags = {"services": {name: dict(spec)}, "strict": True}
        config = load(flags=flags, environ=_environment())
        settings = config.enabled_services().get(name)
        if settings is None:
            raise InvalidArgument(f"services.{name}: cannot be added, because it is disabled.")
        await self.gateway.add_service(name, settings)
        return next(each for each in self.gateway.describe_services() if each["service"] == name)

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        headers: Mapping[str, str] | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> JSON:
        if self._server is None or self._closed or self._owner.has_ended:
            raise TransportBroken("it was closed, or has failed", sent=False)
        request = EmbeddedRequest(next(self._numbers), progress_callback)
        if progress_callback is not None:
            params["_meta"]["progressToken"] = request.request_id
        # A copy: the caller may change its arguments later, and they may be kept here.
        copy = copy_json(params)
        try:
            if method == "tools/call":
                result = await self._server.call(_context(request, copy))
                # A copy: results of own tools share objects that are kept here. Results of services came over a pipe.
                return (
                    copy_json(result)
                    if copy["name"] in self._server.catalog.own_definitions
                    else result
                )
            return await self._handle(cast("Any", request), method, copy)
        except MCPError as error:
            raise JsonRpcError(error.code, error.message, error.error.data) from None


def _context(request: EmbeddedRequest, params: JSON) -> RequestContext:
    meta = params["_meta"]
    connection = Connection.from_envelope(meta[_VERSION], None, meta[_CAPABILITIES])
    return RequestContext(
        session=ServerSession(cast("Any", request), connection, request_meta=meta),
        lifespan_context=cast("Any", {}),
        protocol_version=connection.protocol_version,
        method="tools/call",
        params=params,
        request_id=request.request_id,
        meta=meta,
    )


def copy_json(params: JSON) -> JSON:
    """Return a copy, made by encoding and decoding it as for HTTP. Raises InvalidArgument for a value that is not JSON."""
    return json.loads(encode(params))


@asynccontextmanager
async def open_server(config: Config) -> AsyncGenerator[tuple[Gateway, EmbeddedServer]]:
    gateway = await create_gateway(
        config, address=f"embedded, pid {os.getpid()}", has_local_callers=True
    )
    server = EmbeddedServer(gateway, version=version("statehold"))
    async with hold_open(gateway, Owner(gateway.registry, server.forwarded_requests)):
        yield gateway, server


def load_config(
    config: Config | str | os.PathLike[str] | None,
    services: Mapping[str, Any] | str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | None,
) -> Config:
    """Return the settings of an embedded Statehold. Environment variables are ignored: they belong to the program around it.

    Raises:
        ConfigError: a setting is wrong; the error names the first.
    """
    # A program learns of a wrong service by an exception.
    flags: JSON = {"strict": True}
    file: Path | None = None
    if isinstance(services, Mapping):
        flags["services"] = service_table(services)
    elif services is not None:
        file = Path(services)
    changes: JSON = {}
    if isinstance(config, Config):
        settings = config
        if services is not None:
            loaded = load(services=file, flags=flags, environ=_environment(), is_program=True)
            changes["services"] = loaded.services
            settings = config.with_source(loaded.notes)
    else:
        path = None if config is None else Path(config)
        environ = _environment()
        settings = load(config=path, services=file, flags=flags, environ=environ, is_program=True)
    names = settings.model_fields_set
    if data is not None:
        changes |= {"ephemeral": False, "data": Path(data).expanduser().absolute()}
    elif not (names & {"data", "ephemeral"} or settings.store.model_fields_set):
        changes["ephemeral"] = True
    if "toolsets" not in names:
        # The program owns the server, so it gets all toolsets.
        changes["toolsets"] = list(TOOLSETS)
    return settings.model_copy(update=changes)


def service_table(services: Mapping[str, Any]) -> JSON:
    """Return a client's `mcpServers` table, from its whole document, or as it is."""
    with suppress(KeyError):
        return dict(services["mcpServers"])
    return dict(services)


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.upper().startswith("STATEHOLD_")}


__all__ = ["EmbeddedTransport", "load_config"]
