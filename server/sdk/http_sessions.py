"""Access to the parts of the MCP SDK without a public API that keep the sessions of its transport over HTTP."""

from __future__ import annotations

import math
from collections.abc import Container, Generator, Hashable
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    AuthorizationContext,
    authorization_context,
)
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCMessage, RequestId

from ...sessions.records import Principal
from ..config.ports import HttpSettings
from .replay import RETRY_MS, Replay, SessionEvents


def open_transport(
    manager: StreamableHTTPSessionManager, session_id: str, user: object
) -> StreamableHTTPServerTransport | None:
    """Return the transport of a session if `user` may use it, None if the manager has to refuse the request."""
    transport = manager._server_instances.get(session_id)  # pyright: ignore[reportPrivateUsage]
    if transport is None or transport.is_terminated:
        return None
    owner = manager._session_owners.get(session_id)  # pyright: ignore[reportPrivateUsage]
    requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
    idle = transport.idle_scope
    if requestor != owner or (idle is not None and idle.cancel_called):
        return None
    return transport


class TransportSessions(StreamableHTTPSessionManager):
    """The SDK's transport sessions with a limit for each principal, and with stored events for clients that reconnect.

    `prefix` begins the id of each session; random digits follow.

    At the limit of a principal, its longest idle session is ended; at the total limit, that of the principal with the most
    sessions. If no session is idle, the request for a new one is refused with 503.
    """

    def __init__(self, app: Server[Any], settings: HttpSettings, *, prefix: str = "") -> None:
        super().__init__(app, max_sessions=settings.transport_sessions, retry_interval=RETRY_MS)
        self._limit_per_owner = settings.transport_sessions_per_principal
        self._prefix = prefix
        self._replay = Replay(settings)
        self._sessions_by_owner: dict[Hashable, dict[str, SessionEvents | None]] = {}

    def events(self, session_id: str) -> SessionEvents | None:
        """Return the stored events of a session, None if its events are not stored."""
        return next(
            (
                events[session_id]
                for events in self._sessions_by_owner.values()
                if session_id in events
            ),
            None,
        )

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        owner: Hashable = requestor and (requestor["issuer"], requestor["subject"])
        if len(self._sessions_by_owner.get(owner, ())) >= self._limit_per_owner:
            if not self._end_idle(owner):
                return None
        elif self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            owners = sorted(
                self._sessions_by_owner, key=lambda owner: -len(self._sessions_by_owner[owner])
            )
            if not any(self._end_idle(owner) for owner in owners):
                return None
        events = self._replay.open(owner)
        self.event_store = events
        transport = super()._admit_session(requestor)
        if transport is not None and transport.mcp_session_id is not None:
            session_id = self._rename(transport, transport.mcp_session_id)
            self._sessions_by_owner.setdefault(owner, {})[session_id] = events
        return transport

    def _rename(self, transport: StreamableHTTPServerTransport, session_id: str) -> str:
        """Put the prefix in front of the id of a new session, before anything else knows the id."""
        transport.mcp_session_id = new_id = f"{self._prefix}{session_id}"
        self._server_instances[new_id] = self._server_instances.pop(session_id)
        if session_id in self._session_owners:
            self._session_owners[new_id] = self._session_owners.pop(session_id)
        return new_id

    def _end_idle(self, owner: Hashable) -> bool:
        """End the longest idle session of a principal. False when none is idle."""
        idle: list[tuple[float, str, anyio.CancelScope]] = []
        for session_id in self._sessions_by_owner.get(owner, ()):
            transport = self._server_instances.get(session_id)
            scope = None if transport is None else transport.idle_scope
            if transport is None or scope is None or scope.deadline == math.inf:
                continue
            if not transport._requests_in_flight:  # pyright: ignore[reportPrivateUsage]
                idle.append((scope.deadline, session_id, scope))
        if not idle:
            return False
        _, session_id, scope = min(idle, key=lambda entry: entry[:2])
        self._server_instances.pop(session_id)
        self._session_owners.pop(session_id, None)
        self._forget(session_id)
        scope.cancel()
        return True

    def end_of(self, revoked: Container[str]) -> None:
        """End the sessions of the principals with these keys, with their calls."""
        for session_id, owner in list(self._session_owners.items()):
            principal = Principal(issuer=owner["issuer"] or "", subject=owner["subject"] or "")
            transport = self._server_instances.get(session_id)
            if principal.key in revoked and transport is not None and self._task_group is not None:
                self._task_group.start_soon(self._discard_session, session_id, transport)

    async def _discard_session(
        self, session_id: str, transport: StreamableHTTPServerTransport
    ) -> None:
        self._forget(session_id)
        await super()._discard_session(session_id, transport)

    def _forget(self, session_id: str) -> None:
        for owner, sessions in list(self._sessions_by_owner.items()):
            if session_id in sessions:
                events = sessions.pop(session_id)
                if events is not None:
                    self._replay.close(events)
                if not sessions:
                    del self._sessions_by_owner[owner]


async def send_on(
    transport: StreamableHTTPServerTransport, message: JSONRPCMessage, request_id: RequestId
) -> None:
    """Send a message for a request whose stream broke: it is stored, and sent when the client reconnects."""
    stream = transport._write_stream  # pyright: ignore[reportPrivateUsage]
    if stream is not None:
        metadata = ServerMessageMetadata(related_request_id=request_id)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await stream.send(SessionMessage(message, metadata=metadata))


@contextmanager
def in_flight(transport: StreamableHTTPServerTransport) -> Generator[None]:
    """Count a request among those of the transport, which then does not end the session as idle meanwhile."""
    idle = transport.idle_scope
    seconds = transport._idle_timeout  # pyright: ignore[reportPrivateUsage]
    if idle is None or seconds is None:
        yield
        return
    transport._requests_in_flight += 1  # pyright: ignore[reportPrivateUsage]
    idle.deadline = math.inf
    try:
        yield
    finally:
        transport._requests_in_flight -= 1  # pyright: ignore[reportPrivateUsage]
        if not transport._requests_in_flight:  # pyright: ignore[reportPrivateUsage]
            idle.deadline = anyio.current_time() + seconds
