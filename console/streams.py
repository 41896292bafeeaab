"""Responses that send until the client leaves or its login ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..server.asgi import cancel_when_left
from ..sessions.errors import SessionLimit
from .errors import error_response
from .logins import CHECK_SECONDS, Login, Logins

SendPart = Callable[[bytes], Awaitable[None]]


class LoginStream(Response):
    """A response of unknown length. It ends at the latest when the login expires.

    A subclass sends the parts; the response ends when it returns, or earlier with the client or the login, or when
    may_go_on() says so. `owner` is the key of the owner of a guest's session. A person with too many streams gets
    `session_limit` instead.
    """

    def __init__(self, media_type: str, logins: Logins, login: Login, owner: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._logins = logins
        self._login = login
        self._owner = owner
        self._seconds = login.expires_at - logins.clock()

    async def send_parts(self, send: SendPart) -> None:
        """Send the parts of the body."""
        raise NotImplementedError

    async def may_go_on(self) -> bool:
        """Whether its user may still have it. It is asked all the time."""
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._logins.stream(self._login, self._owner))
            except SessionLimit as error:
                await error_response(error)(scope, receive, send)
                return
            await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_part(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
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
