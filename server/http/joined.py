"""A connection that sends the head of a response together with its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

HEAD: Final = b"HTTP/1.1 "

LINGER_SECONDS: Final = 2.0
"""Seconds for which a connection that is closed before the end of a request is still read. Closing it with unread data
would reset it, and the client might lose the answer."""


class JoinedTransport(asyncio.Transport):
    """Wraps the transport of one HTTP connection, for as long as that lives.

    uvicorn writes the head and then the body, which costs two system calls here and wakes up the client twice. A head waits
    for a write in the same turn of the event loop, not longer. `on_write` gets the number of bytes of each write.
    """

    def __init__(
        self, transport: asyncio.Transport, on_write: Callable[[int], None] | None = None
    ) -> None:
        super().__init__()
        self._on_write = on_write
        self._lingering: asyncio.TimerHandle | None = None
        self.lingers = False
        """Whether close() first ends only its own side."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head: bytes | None = None
        self._turn: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing():
            # asyncio drops data written to a closing transport, where uvloop raises.
            self._taken()
        elif self._head is not None:
            head = self._taken()
            self._transport.writelines((head, data))
        elif isinstance(data, bytes) and data.startswith(HEAD):
            self._head = data
            self._turn = self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)
        if self._on_write is not None:
            self._on_write(len(data))

    def _taken(self) -> bytes:
        head, self._head = self._head or b"", None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        return head

    def _flush(self) -> None:
        if self._head is not None:
            head = self._taken()
            if not self._transport.is_closing():
                self._transport.write(head)

    def close(self) -> None:
        self._flush()
        if not self.lingers or self._transport.is_closing():
            self._transport.close()
        elif self._lingering is None:
            self._transport.resume_reading()
            self._transport.write_eof()
            self._lingering = self._loop.call_later(LINGER_SECONDS, self._transport.close)

    def abort(self) -> None:
        self._taken()
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + len(self._head or b"")

    # The rest is the transport's own.

    def is_closing(self) -> bool:
        return self._lingering is not None or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()


__all__ = ["JoinedTransport"]
