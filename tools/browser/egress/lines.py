"""Ends of connections that are not simply closed."""

from __future__ import annotations

import socket
import struct

import anyio
from anyio.abc import SocketAttribute, SocketStream

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""What a connection raises that is over."""


async def close(stream: SocketStream) -> None:
    """Close, even in a cancelled scope. What the other side has not taken by now may be lost."""
    with anyio.CancelScope(shield=True):
        await stream.aclose()


async def reset(stream: SocketStream) -> None:
    """End a connection so that the other side cannot take what it has for all there is."""
    try:
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except (OSError, AttributeError):
        pass  # it is gone already
    await close(stream)


async def drain(stream: SocketStream, *, seconds: float = 2.0, most: int = 2**20) -> None:
    """Say that no more comes and take what still does: closing with bytes unread would destroy the answer on its way."""
    with anyio.move_on_after(seconds):
        try:
            await stream.send_eof()
            while most > 0:
                most -= len(await stream.receive())
        except BROKEN:
            pass


def keep_alive(stream: SocketStream) -> None:
    """Find out in the end when the other side has vanished."""
    stream.extra(SocketAttribute.raw_socket).setsockopt(
        socket.SOL_SOCKET, socket.SO_KEEPALIVE, True
    )


__all__ = ["BROKEN", "close", "drain", "keep_alive", "reset"]
