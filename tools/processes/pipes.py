"""Ends of pipes as an event loop takes them over."""

from __future__ import annotations

import asyncio
import os
from typing import IO, Self


class PipeEnd:
    """A descriptor that is given to `connect_read_pipe` or `connect_write_pipe`, and closed with their transport, once.

    uvloop has libuv close the descriptor and closes the file object it was given afterwards. In between, another thread may
    have opened a file of the same number: then that one would be closed, and with the next number the loop's own, upon which
    libuv aborts the process.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_closed = not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)

    @classmethod
    def of(cls, pipe: IO[bytes]) -> Self:
        """Take the place of a file object without a buffer, which is closed."""
        with pipe:
            return cls(os.dup(pipe.fileno()))

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._fd)


__all__ = ["PipeEnd"]
