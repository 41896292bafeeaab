"""The open event streams of clients, which are ended when the process stops, or when the token of the client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHOD: Final = b"mcp-method"
_LISTEN: Final = b"subscriptions/listen"


class OpenStreams:
    """The streams of clients that last until the client leaves: GET requests, and those of `subscriptions/listen`.

    Without that, each stream would keep uvicorn from stopping. To the client, the stream ends normally.
    """

    def __init__(self) -> None:
        self._scopes: dict[anyio.CancelScope, Scope] = {}
        """The scope of the request of each stream."""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose streams can be ended."""
        return _Streams(app, self)

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a stream until it, or this object, ends it."""
        is_started = is_finished = False

        async def send_and_track(message: Message) -> None:
            nonlocal is_started, is_finished
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)
            is_finished = message["type"] == "http.response.body" and not message.get("more_body")

        with anyio.CancelScope() as stream:
            self._scopes[stream] = scope
            try:
                await app(scope, receive, send_and_track)
            finally:
                self._scopes.pop(stream, None)
        if stream.cancelled_caught and is_started and not is_finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End the streams of GET requests. Those of `subscriptions/listen` end with an answer of the server."""
        for stream, scope in list(self._scopes.items()):
            if scope["method"] == "GET":
                stream.cancel()

    def end_without_token(self, is_valid: Callable[[str], bool]) -> None:
        """End the streams whose static token is valid no more. Those for another node have none: that node ends them."""
        for stream, scope in list(self._scopes.items()):
            token = _token_of(scope)
            if token is not None and not is_valid(token):
                stream.cancel()


class _Streams:
    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_stream(scope):
            await self._streams.run(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _token_of(scope: Scope) -> str | None:
    """Return the static token of the caller, if any. A client that refreshes its access token keeps its streams."""
    user: object = scope.get("user")
    if not isinstance(user, AuthenticatedUser) or user.access_token.expires_at is not None:
        return None
    for name, value in scope["headers"]:
        if name == b"authorization":
            return value.decode("latin-1").partition(" ")[2].strip()
    return None


def _is_stream(scope: Scope) -> bool:
    return scope["method"] == "GET" or (_METHOD, _LISTEN) in scope["headers"]


__all__ = ["OpenStreams"]
