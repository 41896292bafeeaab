"""The stdout of a kept child for the event loop: what is read from it is in the call log before anything else."""

from __future__ import annotations

import asyncio
import os

from .call_log import CallLog
from .pipes import PipeEnd


class LoggedPipe(asyncio.ReadTransport):
    """A read transport over a pipe. It owns the descriptor, from the first read until the end of the pipe or close()."""

    def __init__(self, pipe: PipeEnd, log: CallLog, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._fd = pipe.fileno()
        self._log = log
        self._protocol = protocol
        self._is_closed = False
        os.set_blocking(self._fd, False)
        protocol.connection_made(self)
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = self._log.read(self._fd)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._protocol.data_received(data)
        else:
            self.close()

    def pause_reading(self) -> None:
        self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        self._loop.add_reader(self._fd, self._read)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Close the pipe. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._loop.call_soon(self._protocol.connection_lost, None)


__all__ = ["LoggedPipe"]
