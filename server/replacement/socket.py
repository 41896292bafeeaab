"""The replacement of a running server by a new process for the same address.

A server that can be replaced listens on a Unix socket in the data folder, named after its address. A new process connects
and gets the open listening socket, so that no connection is refused. When the new process serves, it sends the id of its
node: then the old server stops accepting, gives up its sessions and ends, and with it this connection. A connection that
ends earlier changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskStatus

from ..sockets.accept_loop import accept_sockets
from ..sockets.unix_listener import listen
from ..sockets.unix_sockets import (
    claim_socket_path,
    create_private_folder,
    is_same_user,
    remove_socket,
    socket_path,
)

FOLDER: Final = "replacement"
ANSWER_SECONDS: Final = 5.0
"""Seconds in which a server has to answer."""
LINE_BYTES: Final = 4096


class NotReplaced(Exception):
    """Raised when a running server does not give its place to this process. The text is a part of a line."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The process that takes over from this one."""

    node: str
    pid: int


class Predecessor:
    """A running server whose listening socket this process has. It lives in the block of ReplacementSocket.find()."""

    def __init__(self, connection: socket.socket, listener: socket.socket) -> None:
        self._connection = connection
        self.listener = listener

    async def replace(self, node: str) -> None:
        """Have it stop accepting and give up its sessions to a node of this process, which accepts already.

        A server that has ended meanwhile is no error.

        Raises:
            NotReplaced: another process replaces it, or it does not answer.
        """
        self._connection.setblocking(False)
        request = {"node": node, "pid": os.getpid()}
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                await _send(self._connection, request)
                answer = await _receive(self._connection)
        except ConnectionError:
            return
        except TimeoutError:
            raise NotReplaced(f"it does not answer within {ANSWER_SECONDS:g} s") from None
        if "refused" in answer:
            raise NotReplaced(str(answer["refused"]))

    async def wait_ended(self) -> None:
        """Wait until it has given up its sessions, after replace()."""
        try:
            await _receive(self._connection)
        except ConnectionError:
            return


class ReplacementSocket:
    """The Unix socket at which the server of one address can be replaced."""

    def __init__(self, data: Path, host: str, port: int) -> None:
        self._folder = data / FOLDER
        self._name = re.sub(r"[^A-Za-z0-9.]", "_", f"{host.strip('[]')}-{port}")
        self._is_replaced = False

    @contextmanager
    def find(self) -> Generator[Predecessor | None]:
        """Connect to the server of the address while the block runs; None when none runs. Blocks for a short time.

        Raises:
            NotReplaced: it belongs to another user, or does not answer.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(os.fspath(socket_path(self._folder, self._name)))
            except (FileNotFoundError, ConnectionRefusedError):
                yield None
                return
            except OSError as error:
                raise NotReplaced(f"it cannot be asked ({error.strerror or error})") from None
            with _receive_listener(connection) as listener:
                yield Predecessor(connection, listener)

    async def serve(
        self,
        listener: socket.socket,
        on_replaced: Callable[[Successor], None],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Give the listening socket to new processes, until cancelled. One of them replaces this server.

        `on_replaced` is called then, once, and must not block. The connection to the successor ends when this is cancelled.

        Raises:
            OSError: the folder is not private to this user, or the socket cannot be created.
        """
        create_private_folder(self._folder)
        remove_socket(self._folder, self._name)
        path = claim_socket_path(self._folder, self._name)
        with listen(path, self._remove) as unix_listener:
            task_status.started()
            async with anyio.create_task_group() as tasks:
                answer = partial(self._answer, listener, on_replaced)
                await accept_sockets(unix_listener, tasks, answer)

    def _remove(self) -> None:
        # Afterwards the path is the successor's.
        if not self._is_replaced:
            remove_socket(self._folder, self._name)

    async def _answer(
        self,
        listener: socket.socket,
        on_replaced: Callable[[Successor], None],
        connection: socket.socket,
    ) -> None:
        with connection:
            if self._is_replaced or not is_same_user(connection):
                return
            socket.send_fds(connection, [b"{}\n"], [listener.fileno()])
            request = await _receive(connection)
            if self._is_replaced:
                await _send(connection, {"refused": "another process replaces it"})
                return
            successor = Successor(str(request["node"]), int(request["pid"]))
            self._remove()
            self._is_replaced = True
            on_replaced(successor)
            await _send(connection, {})
            await anyio.sleep_forever()


def _receive_listener(connection: socket.socket) -> socket.socket:
    if not is_same_user(connection):
        raise NotReplaced("it belongs to another user")
    try:
        _, descriptors, _, _ = socket.recv_fds(connection, LINE_BYTES, 1)
    except TimeoutError:
        raise NotReplaced(f"it does not answer within {ANSWER_SECONDS:g} s") from None
    except ConnectionError:
        descriptors = []
    if not descriptors:
        raise NotReplaced("it ends, or another process replaces it")
    listener = socket.socket(fileno=descriptors[0])
    listener.set_inheritable(False)
    return listener


async def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def _receive(connection: socket.socket) -> dict[str, Any]:
    """Return the next message. One is sent only when the one before it was answered.

    Raises:
        ConnectionError: the connection ended, or the message is malformed.
    """
    loop, data = asyncio.get_running_loop(), b""
    while not data.endswith(b"\n"):
        received = await loop.sock_recv(connection, LINE_BYTES)
        data += received
        if not received or len(data) > LINE_BYTES:
            raise ConnectionResetError
    message: object = json.loads(data)
    if not isinstance(message, dict):
        raise ConnectionResetError
    return cast("dict[str, Any]", message)


__all__ = ["NotReplaced", "Predecessor", "ReplacementSocket", "Successor"]
