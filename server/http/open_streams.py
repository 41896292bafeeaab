"""The open event streams of clients, which are ended when the process stops."""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OpenStreams:
    """The GET requests of clients, which in MCP are streams that last until the client leaves, and how to end them.

    Without that, each stream would keep uvicorn from stopping. To the client, the stream ends normally.
    """

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose GET requests are ended by end()."""
        return _Streams(app, self)

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a GET request until it, or end(), ends it."""
        is_started = is_finished = False

        async def send_and_track(message: Message) -> None:
            nonlocal is_started, is_finished
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)
            is_finished = message["type"] == "http.response.body" and not message.get("more_body")

        with anyio.CancelScope() as stream:
            self._scopes.add(stream)
            try:
                await app(scope, receive, send_and_track)
            finally:
                self._scopes.discard(stream)
        if stream.cancelled_caught and is_started and not is_finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        for stream in list(self._scopes):
            stream.cancel()


class _Streams:
    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            await self._streams.run(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)


__all__ = ["OpenStreams"]
