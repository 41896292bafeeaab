"""The pictures of a page that another node sends, for one viewer of this node."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, Self

import anyio

from .node_connection import ConnectionEnded, NodeConnection
from .node_messages import LENGTH, has_picture

MESSAGE_BYTES: Final = 16 << 20
"""The longest message that is read."""


class NewestPictures:
    """The newest messages of another node. Of those that come while the viewer is busy, it gets the last picture and the
    last message after it: a slow viewer delays neither the other node nor its other viewers.
    """

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._change = anyio.Event()
        self._has_ended = self._is_cut = False

    async def read_all(self, connection: NodeConnection) -> None:
        """Read the messages until they end. Never raises: the iteration ends then."""
        try:
            async for message in _read_messages(connection):
                is_picture = has_picture(message)
                kept = [] if is_picture else [each for each in self._waiting if has_picture(each)]
                self._waiting = [*kept, message]
                self._notify_change()
        except ConnectionEnded:
            self._is_cut = True
        finally:
            self._has_ended = True
            self._notify_change()

    def _notify_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next message.

        Raises:
            ConnectionEnded: the other node ended within the messages.
        """
        while not self._waiting:
            if self._is_cut:
                raise ConnectionEnded
            if self._has_ended:
                raise StopAsyncIteration
            await self._change.wait()
        return self._waiting.pop(0)


async def _read_messages(connection: NodeConnection) -> AsyncGenerator[bytes]:
    """Yield the messages of a response. Raises ConnectionEnded if it ends within one."""
    pending = bytearray()
    while part := await connection.read():
        pending += part
        while len(pending) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(pending)
            end = LENGTH.size + length
            if not LENGTH.size <= length <= MESSAGE_BYTES:
                raise ConnectionEnded
            if len(pending) < end:
                break
            yield bytes(pending[:end])
            del pending[:end]
    if pending:
        raise ConnectionEnded
