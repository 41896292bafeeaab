"""The first lines on a connection between two machines: each node proves to the other that it has a key of the cluster.

The node that connects sends an assertion of the message HELLO. The other one answers `{"proof": MAC}`, or closes the
connection without an answer, so that a stranger learns nothing. Only then is there room for larger messages.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from .assertion import AssertionRefused, Assertions
from .messages import ConnectionEnded, encode, parse

HELLO: Final = b"statehold forwarding 1"
"""The message that the first assertion is about, which names the version of the protocol."""
LINE_BYTES: Final = 1024
"""The longest line of a handshake."""


async def introduce(connection: socket.socket, assertions: Assertions, node: str) -> None:
    """Introduce this node at the end that has connected, and check that `node` is at the other one.

    Raises:
        AssertionRefused: another program is there.
        ConnectionEnded: the other end refuses this node, or sends something else.
        OSError: the connection failed.
    """
    loop = asyncio.get_running_loop()
    assertion = assertions.sign(node, HELLO)
    await loop.sock_sendall(connection, encode(assertion))
    answer = parse(await _receive_line(connection))
    assertions.check_proof(assertion, str(answer.get("proof")))


async def admit(connection: socket.socket, assertions: Assertions) -> None:
    """Check at the end that was connected to that a node of the cluster is at the other one.

    Raises:
        AssertionRefused, ConnectionEnded: it is none.
        OSError: the connection failed.
    """
    assertion = parse(await _receive_line(connection))
    assertions.verify(assertion, HELLO)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, encode({"proof": assertions.prove(assertion)}))


async def _receive_line(connection: socket.socket) -> bytes:
    loop, line = asyncio.get_running_loop(), b""
    # No byte beyond the line has been sent: the other end waits for the answer.
    while not line.endswith(b"\n"):
        part = await loop.sock_recv(connection, LINE_BYTES - len(line))
        if not part:
            raise ConnectionEnded
        line += part
    return line


__all__ = ["AssertionRefused", "admit", "introduce"]
