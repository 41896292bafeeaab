"""HTTP requests that other nodes have forwarded, answered by the application of this node."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.authentication import AuthCredentials
from starlette.types import ASGIApp, Message

from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL, Principal
from ..auth.principals import token_of
from ..forwarding.http_requests import HTTP_METHOD, HttpRequest, encode_part
from ..forwarding.listener import Edge, NotOwner
from ..forwarding.messages import ConnectionEnded, ForwardedRequest

logger = logging.getLogger("statehold.server")


class ForwardedExchanges:
    """Answers the HTTP requests that other nodes forward, while run() is open.

    `app` is the application behind the check of tokens. With `needs_user`, callers of this node have tokens.
    """

    def __init__(self, app: ASGIApp, *, needs_user: bool) -> None:
        self._app = app
        self._needs_user = needs_user
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def answer(self, request: ForwardedRequest, edge: Edge) -> JSON:
        """Return the last message about a request. Cancelled, it tells the application that the client has left.

        Raises:
            NotOwner: this node serves no such callers, or ends.
        """
        if self._tasks is None or not (self._needs_user or request.principal == LOCAL):
            raise NotOwner
        try:
            http_request = HttpRequest.parse(request.params)
        except ValueError:
            raise ConnectionEnded from None
        user = _user_of(request.principal) if self._needs_user else None
        exchange = _Exchange(http_request, user, edge)
        # In a task of its own: a client that leaves does not cancel its request.
        self._tasks.start_soon(exchange.run, self._app)
        try:
            return {"result": await exchange.wait_answered()}
        finally:
            exchange.disconnect()


def _user_of(principal: Principal) -> AuthenticatedUser:
    return AuthenticatedUser(token_of(principal, token=""))


class _Exchange:
    """One request and its response, as the ASGI application sees them."""

    def __init__(self, request: HttpRequest, user: AuthenticatedUser | None, edge: Edge) -> None:
        self._scope = request.scope()
        if user is not None:
            self._scope.update(user=user, auth=AuthCredentials([]))
        self._body: bytes | None = request.body_bytes()
        self._edge = edge
        self._start: Message | None = None
        self._is_begun = False
        """Whether a part was sent."""
        self._last_part: JSON | None = None
        self._answered = anyio.Event()
        self._disconnected = anyio.Event()

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            logger.exception("a forwarded HTTP request failed")
        finally:
            self._answered.set()

    async def wait_answered(self) -> JSON:
        """Return the last part of the response."""
        await self._answered.wait()
        if self._last_part is not None:
            return self._last_part
        failure = {"type": "http.response.start", "status": 500}
        return encode_part(None if self._is_begun else failure, b"")

    def disconnect(self) -> None:
        self._disconnected.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # A known event is returned without a checkpoint, as uvicorn does.
        if not self._disconnected.is_set():
            await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._disconnected.is_set():
            return
        body = b""
        if message["type"] == "http.response.start":
            self._start = message
            if any(name == b"content-length" for name, _ in message.get("headers", ())):
                # The body follows at once, in the same part.
                return
        else:
            body = message.get("body", b"")
        part = encode_part(self._start, body)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._last_part = part
            self._answered.set()
            self.disconnect()
            return
        self._start, self._is_begun = None, True
        try:
            await self._edge.notify(HTTP_METHOD, part)
        except ConnectionEnded:
            self.disconnect()


__all__ = ["ForwardedExchanges"]
