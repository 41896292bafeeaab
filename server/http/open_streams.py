"""The open event streams of clients, which are ended when the process stops."""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OpenStreams:
    """Wraps an application and can end its GET requests, which in MCP are streams that last until the client leaves.

    Without that, each stream would keep uvicorn from stopping. To the client, the stream ends normally.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._scopes: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        is_started = is_finished = False

        async def send_and_track(message: Message) -> None:
            nonlocal is_started, is_finished
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)
            is_finished = message["type"] == "http.response.body" and not message.get("more_body")

        with anyio.CancelScope() as stream:
            self._scopes.add(stream)
            try:
                await self._app(scope, receive, send_and_track)
            finally:
                self._scopes.discard(stream)
        if stream.cancelled_caught and is_started and not is_finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        for stream in list(self._scopes):
            stream.cancel()


__all__ = ["OpenStreams"]
