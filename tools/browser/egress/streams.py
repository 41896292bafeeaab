"""Ways to end a connection, and the exceptions of an ended one."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""The exceptions of a connection that has ended."""

GONE = (OSError, AttributeError, ValueError, anyio.TypedAttributeLookupError)
"""The exceptions of the socket of such a connection, or of a question about it. uvloop raises those that are no OSError."""


async def close(stream: SocketStream) -> None:
    """Close, even in a cancelled scope. Bytes that the other side has not received may be lost."""
    with anyio.CancelScope(shield=True):
        await stream.aclose()


async def reset(stream: SocketStream) -> None:
    """Reset a connection, so that the other side does not take an incomplete answer for a complete one."""
    _set_option(stream, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await close(stream)


async def send_end(stream: SocketStream) -> None:
    """Send the end of the stream.

    Raises:
        anyio.BrokenResourceError: It has ended meanwhile.
    """
    try:
        await stream.send_eof()
    except RuntimeError as error:
        # uvloop raises it for a transport that is closed.
        raise anyio.BrokenResourceError from error


async def drain(stream: SocketStream, *, seconds: float = 2.0, most: int = 2**20) -> None:
    """Send the end of the stream and read on: a close with unread bytes would destroy the answer on its way.

    Reads for at most `seconds`, and about `most` bytes.
    """
    with anyio.move_on_after(seconds):
        try:
            await send_end(stream)
            while most > 0:
                most -= len(await stream.receive())
        except BROKEN:
            pass


def keep_alive(stream: SocketStream) -> None:
    """Turn on TCP keepalive, so that a vanished peer is noticed in the end."""
    _set_option(stream, socket.SO_KEEPALIVE, True)


def _set_option(stream: SocketStream, option: int, value: int | bytes) -> None:
    """Set an option of a socket, unless its connection has ended."""
    with suppress(*GONE):
        stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, option, value)
