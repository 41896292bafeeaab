"""The open event streams of clients, which end with the process."""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Streams:
    """Wraps an application and can end every GET request in it, which for MCP are streams without an end of their own.

    Without that each of them would keep uvicorn from stopping. A stream is ended as if its server had finished it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        started = finished = False

        async def watched(message: Message) -> None:
            nonlocal started, finished
            started = started or message["type"] == "http.response.start"
            await send(message)
            finished = message["type"] == "http.response.body" and not message.get("more_body")

        with anyio.CancelScope() as stream:
            self._open.add(stream)
            try:
                await self._app(scope, receive, watched)
            finally:
                self._open.discard(stream)
        if stream.cancelled_caught and started and not finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        for stream in list(self._open):
            stream.cancel()


__all__ = ["Streams"]
