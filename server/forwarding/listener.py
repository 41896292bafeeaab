"""The requests that other nodes forward to this one, because it owns their sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Protocol

import anyio

from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ..unix_listener import accept, listen
from .address import NodeSockets
from .messages import (
    ACCEPTED,
    LINE_LIMIT,
    NOT_OWNER,
    REFUSED,
    ConnectionEnded,
    ForwardedRequest,
    MessageConnection,
    raise_error,
)

ANSWER_SECONDS = 2.0
"""Seconds that the last results may take when the process ends."""


class NotOwner(Exception):
    """Raised when this node does not serve a forwarded request, and nothing ran."""


class Edge(Protocol):
    """The client of a forwarded request, as the node that received the request connects it."""

    async def notify(self, method: str, params: JSON | None) -> None: ...

    async def ask(self, method: str, params: JSON | None) -> JSON:
        """Ask the client. Raises MCPError if it refuses."""
        ...


class Reply(Protocol):
    """The answer to a forwarded request."""

    @property
    def message(self) -> JSON: ...

    def return_notice(self) -> None:
        """Make the notice that the answer carries due again, because the answer was not delivered."""
        ...


AnswerForwarded = Callable[[ForwardedRequest, Edge], Awaitable[Reply]]
"""Answers a forwarded request. Raises NotOwner if nothing ran."""


class _EdgeConnection:
    """One connection of another node; implements Edge for the request that runs on it."""

    def __init__(self, connection: MessageConnection) -> None:
        self.connection = connection
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[JSON]] = {}

    async def notify(self, method: str, params: JSON | None) -> None:
        await self.connection.send({"notify": method, "params": params})

    async def ask(self, method: str, params: JSON | None) -> JSON:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self.connection.send({"ask": number, "method": method, "params": params})
            message = await answer
        finally:
            del self._answers[number]
        if "error" in message:
            raise_error(message["error"])
        return message["result"]

    def take_answer(self, message: JSON) -> None:
        answer = self._answers.get(message["answer"])
        if answer is not None and not answer.done():
            answer.set_result(message)


class ForwardingListener:
    """Serves forwarded requests while run() is open. A request whose connection ends is cancelled."""

    def __init__(self, registry: Registry, answer: Callable[[], AnswerForwarded | None]) -> None:
        self._registry = registry
        self._answer = answer
        self._running = 0
        self._idle = anyio.Event()

    @asynccontextmanager
    async def run(self, sockets: NodeSockets, node: str) -> AsyncGenerator[None]:
        """Listen while the block runs. The results of the last requests are sent before it ends.

        Raises:
            OSError: the socket cannot be created.
        """
        path = sockets.claim(node)
        with listen(path, partial(sockets.remove, node)) as listener:
            async with anyio.create_task_group() as tasks:
                serve = partial(accept, line_limit=LINE_LIMIT)
                tasks.start_soon(serve, listener, tasks, self._serve)
                try:
                    yield
                finally:
                    with anyio.move_on_after(ANSWER_SECONDS, shield=True):
                        while self._running:
                            await self._idle.wait()
                    tasks.cancel_scope.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        edge = _EdgeConnection(MessageConnection(reader, writer))
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    message = await edge.connection.receive()
                    if "answer" in message:
                        edge.take_answer(message)
                    else:
                        tasks.start_soon(self._run, ForwardedRequest.parse(message), edge)
            except ConnectionEnded:
                tasks.cancel_scope.cancel()

    async def _run(self, request: ForwardedRequest, edge: _EdgeConnection) -> None:
        self._running += 1
        try:
            await self._respond(request, edge)
        except ConnectionEnded:
            return
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
                self._idle = anyio.Event()

    async def _respond(self, request: ForwardedRequest, edge: _EdgeConnection) -> None:
        answer, connection = self._answer(), edge.connection
        if answer is None or not self._may_begin(request):
            await connection.send(NOT_OWNER)
            return
        if request.namespace != self._registry.core.policy.namespace:
            # A name would stand for another session here.
            await connection.send(REFUSED)
            return
        connection.send_nowait(ACCEPTED)
        try:
            reply = await answer(request, edge)
        except NotOwner:
            await connection.send(NOT_OWNER)
            return
        try:
            await connection.send(reply.message)
        except BaseException:
            reply.return_notice()
            raise

    def _may_begin(self, request: ForwardedRequest) -> bool:
        # A node that was stopped must not begin what its sender has given up.
        return time.monotonic() < request.begin_before and self._registry.owns(request.session_id)


__all__ = ["AnswerForwarded", "Edge", "ForwardingListener", "NotOwner", "Reply"]
