"""Pipe ends that can be passed to an event loop."""

from __future__ import annotations

import asyncio
import os
from typing import IO, Self


class PipeEnd:
    """A pipe end for `connect_read_pipe` or `connect_write_pipe`. Its descriptor is closed exactly once, by the transport.

    uvloop closes a descriptor twice: through libuv, and later through the file object that it was given. In between, another
    thread may open a file with the same number. The second close() would close that file, or a descriptor of the loop, which
    makes libuv abort the process.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_closed = not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)

    @classmethod
    def of(cls, pipe: IO[bytes]) -> Self:
        """Take over the descriptor of an unbuffered file object and close the object."""
        with pipe:
            return cls(os.dup(pipe.fileno()))

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._fd)
