"""Responses that send until the client leaves or its login ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..asgi import cancel_when_left
from .logins import CHECK_SECONDS, Login

SendPart = Callable[[bytes], Awaitable[None]]


class LoginStream(Response):
    """A response of unknown length. `seconds` are those until the login expires.

    A subclass sends the parts; the response ends when it returns, or earlier with the client or the login, or when
    may_go_on() says so.
    """

    def __init__(self, media_type: str, login: Login, seconds: float) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._login = login
        self._seconds = seconds

    async def send_parts(self, send: SendPart) -> None:
        """Send the parts of the body."""
        raise NotImplementedError

    async def may_go_on(self) -> bool:
        """Whether its user may still have it. It is asked all the time."""
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_part(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with self._login.stream():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
                tasks.start_soon(self._cancel_when_ended, tasks.cancel_scope)
                tasks.start_soon(self._cancel_when_refused, tasks.cancel_scope)
                await self.send_parts(send_part)
                tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cancel_when_ended(self, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self._seconds):
            await self._login.ended.wait()
        scope.cancel()

    async def _cancel_when_refused(self, scope: anyio.CancelScope) -> None:
        while True:
            if not await self.may_go_on():
                scope.cancel()
            await anyio.sleep(CHECK_SECONDS)


__all__ = ["LoginStream", "SendPart"]
