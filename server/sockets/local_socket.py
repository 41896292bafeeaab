"""The local socket of a process, at which this user's other processes reach it: one Unix socket in the data folder.

A connection begins with a line of JSON, `{"verb": VERB, ...}`. The handler of the verb gets the members of the line, and the
connection at the byte after it. Handlers that answer with a line send `{"content": {...}}` or `{"error": {"code", "message",
"recovery"}}`; so is a line answered that has no handler. request.py is the other end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from .address import claim_socket, create_private_folder, remove_socket, remove_stale_sockets
from .request import UNKNOWN_VERB, is_same_user

RETRY_SECONDS: Final = 1.0

ServeSocket = Callable[[socket.socket], Awaitable[None]]

logger = logging.getLogger("statehold.server")


async def accept_sockets(listener: socket.socket, tasks: TaskGroup, serve: ServeSocket) -> None:
    """Accept connections until cancelled, and serve each in a task of `tasks`. A failing one is logged.

    `serve` closes the connection.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            # The process has no descriptor left; clients that leave return theirs.
            logger.error("a client cannot be accepted: %s", error.strerror)
            await anyio.sleep(RETRY_SECONDS)
        else:
            tasks.start_soon(serve_socket, connection, serve)


async def serve_socket(connection: socket.socket, serve: ServeSocket) -> None:
    """Serve one connection. A failure is logged, unless the connection broke."""
    try:
        await serve(connection)
    except ConnectionError:
        return
    except Exception:
        # One client must not end the others.
        logger.exception("a connection failed")


LINE_BYTES: Final = 4 << 20
"""Bytes of a first line at most: an operator request may hold a state."""
READ_SECONDS: Final = 5.0
"""Seconds in which the first line has to be there, and in which an answer has to be read."""
START_SECONDS: Final = 20.0
"""Seconds that a request waits for its verb while the process starts."""
MAX_OPENINGS: Final = 64
"""Connections at once whose first line is read; others wait."""
BACKLOG: Final = 256
SEND_BYTES: Final = 1 << 20
_PEEK_BYTES: Final = 1 << 16

Handler = Callable[[JSON, socket.socket], Awaitable[None]]
"""Serves a connection. The JSON is the first line without its verb, the socket is non-blocking and has read that line only.

The handler closes the socket, also when it fails or is cancelled.
"""


class LocalSocket:
    """The local socket of this process while local_socket() is open. Requests wait until the first verbs are served.

    A server that starts is thereby found as one that runs, so nobody starts another one beside it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        """The path at which to connect; None without a data folder: then nobody reaches this process."""
        self._handlers: dict[str, tuple[Handler, TaskGroup]] = {}
        self._openings = anyio.Semaphore(MAX_OPENINGS)
        self._started = anyio.Event()

    @asynccontextmanager
    async def serve(
        self, handlers: Mapping[str, Handler], *, is_starting: bool = False
    ) -> AsyncGenerator[None]:
        """Serve the connections of some verbs while the block runs. Its end cancels their handlers and waits for them.

        A handler that fails is logged. Verbs may be added at any time, each by one block. `is_starting`: more verbs follow,
        and requests for those wait.
        """
        async with anyio.create_task_group() as tasks:
            for verb, handler in handlers.items():
                self._handlers[verb] = handler, tasks
            if not is_starting:
                self._started.set()
            try:
                yield
            finally:
                for verb in handlers:
                    del self._handlers[verb]
                tasks.cancel_scope.cancel()

    async def open(self, connection: socket.socket) -> None:
        """Read the first line of a connection and start the handler of its verb. Other users are refused."""
        try:
            verb, members = await self._read_request(connection)
            handler, tasks = await self._find_handler(verb)
        except SessionError as error:
            with closing(connection):
                await send_error(connection, error.code, error.message, error.recovery)
        except BaseException:
            connection.close()
            raise
        else:
            tasks.start_soon(serve_socket, connection, partial(handler, members))

    async def _read_request(self, connection: socket.socket) -> tuple[str, JSON]:
        """Return the verb of a connection and its members.

        Raises:
            ConnectionError: there is another user at the other end, or it sent no line in time.
            InvalidArgument: the line is no request.
        """
        if not is_same_user(connection):
            logger.warning("another user connected, and was refused")
            raise ConnectionRefusedError
        # A screenshot then takes one write; the system limits the size.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        async with self._openings:
            with anyio.move_on_after(READ_SECONDS):
                return _parse(await _receive_line(connection))
        raise ConnectionAbortedError

    async def _find_handler(self, verb: str) -> tuple[Handler, TaskGroup]:
        if verb not in self._handlers:
            with anyio.move_on_after(START_SECONDS):
                await self._started.wait()
        if verb not in self._handlers:
            raise _UnknownVerb(verb)
        return self._handlers[verb]


class _UnknownVerb(SessionError):
    code = UNKNOWN_VERB
    recovery = "Try again; the process may be starting, or ending."

    def __init__(self, verb: str) -> None:
        super().__init__(f"This process does not serve {verb:.40} now.")


async def _receive_line(connection: socket.socket) -> bytes:
    """Read to the first newline and no byte beyond it: the rest is for the handler, which may speak another protocol.

    Raises:
        InvalidArgument: the line is too long.
        ConnectionError: the connection ended.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        await anyio.wait_readable(connection)
        with suppress(BlockingIOError):
            seen = connection.recv(_PEEK_BYTES, socket.MSG_PEEK)
            if not seen:
                raise ConnectionResetError
            line += connection.recv(seen.find(b"\n") + 1 or len(seen))
        if len(line) > LINE_BYTES:
            raise InvalidArgument(f"A request is one line of at most {LINE_BYTES} bytes.")
    return bytes(line)


def _parse(line: bytes) -> tuple[str, JSON]:
    try:
        members: object = json.loads(line)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise InvalidArgument("A request is one line with a JSON object.")
    members = cast(JSON, members)
    verb: object = members.pop("verb", None)
    if not isinstance(verb, str):
        raise InvalidArgument("verb: it has to be a text.")
    return verb, members


async def send_content(connection: socket.socket, content: JSON) -> None:
    """Send an answer. A client that does not read it in time gets a part of it."""
    await _send(connection, {"content": content})


async def send_error(connection: socket.socket, code: str, message: str, recovery: str) -> None:
    """Send an error as the answer, as send_content() does."""
    await _send(connection, {"error": {"code": code, "message": message, "recovery": recovery}})


async def _send(connection: socket.socket, answer: JSON) -> None:
    line = json.dumps(answer, default=str).encode() + b"\n"
    with anyio.move_on_after(READ_SECONDS):
        await asyncio.get_running_loop().sock_sendall(connection, line)


@asynccontextmanager
async def local_socket(folder: Path | None, name: str) -> AsyncGenerator[LocalSocket]:
    """Listen at the socket `name` of a folder while the block runs; its end removes the socket.

    The folder is that of the lock files of the nodes, and the name the id of this node. The sockets of killed nodes are
    removed. Without a folder nobody can connect.

    Raises:
        OSError: the folder is not private to this user, or the socket cannot be created.
    """
    if folder is None:
        yield LocalSocket(None)
        return
    create_private_folder(folder)
    remove_stale_sockets(folder, folder)
    path = claim_socket(folder, name)
    with listen(path, partial(remove_socket, folder, name)) as listener:
        server = LocalSocket(path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_sockets, listener, tasks, server.open)
            try:
                yield server
            finally:
                tasks.cancel_scope.cancel()


@contextmanager
def listen(path: Path, remove: Callable[[], None]) -> Generator[socket.socket]:
    """Listen at a path while the block runs; `remove` removes the file at its end.

    Raises:
        OSError: the socket cannot be created.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        try:
            path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            yield listener
        finally:
            remove()
