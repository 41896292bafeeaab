"""The subscriptions of one connection to resources of its upstream, in either era."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
from mcp_types import METHOD_NOT_FOUND

from ...sessions.errors import NotAllowed, SessionError
from ...sessions.json_codec import JSON
from ...sessions.services import CallContext, CallerOptions
from .change_stream import Listener, Send
from .errors import UpstreamRefused
from .negotiation import OFFERED_CAPABILITIES
from .transports.json_rpc import JsonRpcConnection

logger = logging.getLogger("statehold.upstream")

ACKNOWLEDGE_SECONDS: Final = 5.0
"""Seconds to wait for the acknowledgement of a subscription; a later one still takes effect."""

SendRequest = Callable[[str, JSON, CallContext], Awaitable[JSON]]


class InternalContext:
    """The context of a call without a caller. It refuses questions and discards progress and log messages."""

    options = CallerOptions(is_owner=False)
    # Lists belong to all callers, and a server may leave out what its client cannot use.
    capabilities = OFFERED_CAPABILITIES
    wants_facts = False
    reachable = False
    operation_id: str | None = None
    note_upstream_task = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, params: JSON) -> None:
        return

    async def ask(self, method: str, params: JSON) -> JSON:
        raise NotAllowed("Statehold made this call itself and answers no questions.")


class ResourceUpdates:
    """The subscriptions of a connection, which last as long as it. A modern upstream has a stream for each."""

    def __init__(
        self, service: str, request: SendRequest, listen: Send, on_change: Callable[[str], None]
    ) -> None:
        self._service = service
        self._request = request
        self._listen = listen
        self._on_change = on_change
        self._followed_uris: dict[str, set[str]] = {}
        self._follower = ""
        self._streams: dict[str, tuple[anyio.CancelScope, anyio.Event]] = {}

    def follow(
        self, rpc: JsonRpcConnection, followed_uris: dict[str, set[str]], session_id: str
    ) -> None:
        """Subscribe to the resources of a session in the background. Later changes of its subscriptions update the dict."""
        self._followed_uris, self._follower = followed_uris, session_id
        for uri in followed_uris.get(session_id, ()):
            rpc.spawn(contextvars.Context(), partial(self._subscribe_again, rpc, uri))

    async def _subscribe_again(self, rpc: JsonRpcConnection, uri: str) -> None:
        try:
            await self.subscribe(rpc, uri, InternalContext())
        except SessionError as error:
            logger.debug("the subscription to %s could not be renewed: %s", uri, error)

    async def subscribe(self, rpc: JsonRpcConnection, uri: str, ctx: CallContext) -> JSON:
        """Subscribe to a resource. Raises like UpstreamConnection.request()."""
        if not rpc.peer.modern:
            result = await self._request("resources/subscribe", {"uri": uri}, ctx)
        elif uri in self._streams:
            return {}
        else:
            result = {}
            scope, acknowledgement = self._streams[uri] = anyio.CancelScope(), anyio.Event()
            rpc.spawn(contextvars.Context(), partial(self._stream, uri, scope))
            with anyio.move_on_after(ACKNOWLEDGE_SECONDS):
                await acknowledgement.wait()
            if uri not in self._streams:
                raise UpstreamRefused(METHOD_NOT_FOUND, f"It sends no updates of {uri}.")
        self._followed_uris.setdefault(self._follower, set()).add(uri)
        return result

    async def unsubscribe(self, rpc: JsonRpcConnection, uri: str, ctx: CallContext) -> JSON:
        """End a subscription. Raises like UpstreamConnection.request()."""
        if others := self._followed_uris.pop(self._follower, set()) - {uri}:
            self._followed_uris[self._follower] = others
        if not rpc.peer.modern:
            return await self._request("resources/unsubscribe", {"uri": uri}, ctx)
        if (stream := self._streams.pop(uri, None)) is not None:
            stream[0].cancel()
        return {}

    def handle_acknowledgement(self, uri: str) -> None:
        if uri in self._streams:
            self._streams[uri][1].set()

    async def _stream(self, uri: str, scope: anyio.CancelScope) -> None:
        filters: JSON = {"resourceSubscriptions": [uri]}
        listener = Listener(self._service, filters, self._listen, self._on_change)
        with scope:
            await listener.run()
            # The upstream refused it, or ended it for good.
            stream = self._streams.get(uri)
            if stream is not None and stream[0] is scope:
                del self._streams[uri]
                stream[1].set()
