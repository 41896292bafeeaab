"""The fast path of tool calls over Streamable HTTP, in front of the SDK's application.

Most requests are plain tool calls, and the SDK spends most of its work on one of them around the call. The fast path answers
as the SDK would; everything unusual, and every request that is to be refused, goes on to the SDK with its body unread.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData
from starlette.types import ASGIApp, Receive, Scope, Send

from ...sessions.json_codec import JSON
from ..protocol.server import StateholdServer
from ..sdk.access import RequestContext, in_flight
from ..sdk.caller import DELIVERY_SCOPE
from .fast_legacy import AcceptedResponse, LegacyFastPath
from .fast_modern import ModernFastPath
from .fast_request import BODY_LIMIT, again, head_of, read
from .response import PING_SECONDS, CallResponse

logger = logging.getLogger("statehold.server")

ATTEND_SECONDS: Final = 0.05
"""Seconds that a call runs before a task watches whether its client is still connected."""

Taken = tuple[CallResponse, RequestContext] | AcceptedResponse | None
Take = Callable[[bytes, Scope, Receive, Send], Taken]


class FastPath:
    """Answers plain tool calls itself and hands the rest to `app`. Lives while run() is open.

    Calls in the sessions of `manager` take the fast path too, when it is given.
    """

    def __init__(
        self,
        app: ASGIApp,
        face: StateholdServer,
        manager: StreamableHTTPSessionManager | None = None,
        *,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._app = app
        self._face = face
        self._modern = ModernFastPath(face)
        self._legacy = None if manager is None else LegacyFastPath(face, manager)
        self._ping_seconds = ping_seconds
        self._open: dict[CallResponse, None] = {}
        self._some = anyio.Event()
        self.running = False

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._patrol, tasks)
            self.running = True
            try:
                yield
            finally:
                self.running = False
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = head_of(scope) if self.running else None
        if head is None:
            await self._app(scope, receive, send)
        elif self._modern.speaks(head):
            await self._try(partial(self._modern.call, head), scope, receive, send)
        elif self._legacy is None or (talk := self._legacy.talk(head, scope)) is None:
            await self._app(scope, receive, send)
        else:
            with in_flight(talk.transport):
                await self._try(talk.take, scope, receive, send)

    async def _try(self, take: Take, scope: Scope, receive: Receive, send: Send) -> None:
        body, found = await read(receive)
        taken = None if body is None else take(body, scope, receive, send)
        if taken is None:
            await self._app(scope, again(found, receive), send)
        elif isinstance(taken, AcceptedResponse):
            await taken.send(send)
        else:
            await self._serve(*taken)

    async def _serve(self, exchange: CallResponse, context: RequestContext) -> None:
        self._open[exchange] = None
        self._some.set()
        delivered = False
        try:
            answer: JSON | ErrorData | None = None
            with exchange.scope:
                answer = await self._called(context)
            if answer is not None:
                delivered = not _carries_notice(context) or not await exchange.lost()
            answer = exchange.unanswered if answer is None else answer
            if answer is not None:
                await exchange.answer(answer)
        except BaseException:
            delivered = False
            raise
        finally:
            if not delivered:
                self._face.return_notice(context)
            del self._open[exchange]
            exchange.end()

    async def _called(self, context: RequestContext) -> JSON | ErrorData:
        try:
            return await self._face.call(context)
        except MCPError as error:
            return error.error

    async def _patrol(self, tasks: TaskGroup) -> None:
        """Watch the calls that run longer than ATTEND_SECONDS; shorter ones cost nothing here."""
        while True:
            await self._some.wait()
            await anyio.sleep(ATTEND_SECONDS)
            if not self._open:
                self._some = anyio.Event()
                continue
            latest = anyio.current_time() - ATTEND_SECONDS
            for exchange in list(self._open):
                if exchange.began <= latest and not exchange.attended:
                    exchange.attended = True
                    tasks.start_soon(self._attend, exchange)

    async def _attend(self, exchange: CallResponse) -> None:
        try:
            await exchange.attend(self._ping_seconds)
        except Exception:
            logger.exception("the watch over the clients of HTTP calls ended")


def _carries_notice(context: RequestContext) -> bool:
    return context.request is not None and DELIVERY_SCOPE in context.request.scope


__all__ = ["BODY_LIMIT", "FastPath"]
