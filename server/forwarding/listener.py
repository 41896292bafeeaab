"""The requests that other nodes forward to this one, because it owns their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ..sockets.unix_listener import accept, listen
from .address import NodeSockets
from .http_requests import HTTP_METHOD
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


AcceptPeers = Callable[
    [TaskGroup, Callable[[MessageConnection], Awaitable[None]]], Coroutine[Any, Any, None]
]
"""Serves the connections of nodes on other machines in tasks, until cancelled."""


class NotOwner(Exception):
    """Raised when this node does not serve a forwarded request, and nothing ran."""


class Edge(Protocol):
    """The client of a forwarded request, as the node that received the request connects it."""

    async def notify(self, method: str, params: JSON | None) -> None: ...

    async def ask(self, method: str, params: JSON | None) -> JSON:
        """Ask the client. Raises MCPError if it refuses."""
        ...


class Owner(Protocol):
    """Answers forwarded requests of one kind."""

    async def answer(self, request: ForwardedRequest, edge: Edge) -> JSON:
        """Return the last message about a request.

        Raises:
            NotOwner: nothing ran.
        """
        ...


class OwnerServer(Owner, Protocol):
    """The MCP server of this node, as forwarded requests reach it."""

    def return_notice(self, number: int) -> None:
        """Make the notice that an answer carries due again, because the answer was not delivered."""
        ...


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
    """Serves forwarded requests while run() is open. A request whose connection ends is cancelled.

    `server` answers MCP requests, `http` HTTP requests of legacy clients.
    """

    def __init__(
        self,
        registry: Registry,
        server: Callable[[], OwnerServer | None],
        http: Callable[[], Owner | None],
    ) -> None:
        self._registry = registry
        self._server = server
        self._http = http
        self._running = 0
        self._idle = anyio.Event()

    @asynccontextmanager
    async def run(
        self, sockets: NodeSockets, node: str, peers: AcceptPeers | None = None
    ) -> AsyncGenerator[None]:
        """Listen while the block runs, on the Unix socket of this node, and with `peers` on its peer port.

        The results of the last requests are sent before it ends.

        Raises:
            OSError: the socket cannot be created.
        """
        path = sockets.claim(node)
        with listen(path, partial(sockets.remove, node)) as listener:
            async with anyio.create_task_group() as tasks:
                serve = partial(accept, line_limit=LINE_LIMIT)
                tasks.start_soon(serve, listener, tasks, self._serve_unix)
                if peers is not None:
                    tasks.start_soon(peers, tasks, self._serve)
                try:
                    yield
                finally:
                    with anyio.move_on_after(ANSWER_SECONDS, shield=True):
                        while self._running:
                            await self._idle.wait()
                    tasks.cancel_scope.cancel()

    async def _serve_unix(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(MessageConnection(reader, writer))

    async def _serve(self, connection: MessageConnection) -> None:
        edge = _EdgeConnection(connection)
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    message = await edge.connection.receive()
                    if "answer" in message:
                        edge.take_answer(message)
                    elif "undelivered" in message:
                        self._return_notice(message["undelivered"])
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
        owner = self._http() if request.method == HTTP_METHOD else self._server()
        connection = edge.connection
        if owner is None or not self._may_begin(request, connection.clock()):
            await connection.send(NOT_OWNER)
            return
        if request.namespace != self._registry.core.policy.namespace:
            # A name would stand for another session here.
            await connection.send(REFUSED)
            return
        connection.send_nowait(ACCEPTED)
        try:
            message = await owner.answer(request, edge)
        except NotOwner:
            await connection.send(NOT_OWNER)
            return
        try:
            await connection.send(message)
        except BaseException:
            self._return_notice(message.get("notice"))
            raise

    def _return_notice(self, number: object) -> None:
        server = self._server()
        if server is not None and isinstance(number, int):
            server.return_notice(number)

    def _may_begin(self, request: ForwardedRequest, now: float) -> bool:
        # A node that was stopped must not begin what its sender has given up.
        if now >= request.begin_before:
            return False
        if request.method == HTTP_METHOD:
            return True
        if request.adopt:
            # This node may remember the owner that has just given the session up.
            self._registry.forget_owner(request.session_id)
            return not self._registry.draining
        return self._registry.owns(request.session_id, request.epoch)


__all__ = ["Edge", "ForwardingListener", "NotOwner", "Owner", "OwnerServer"]
