"""A started program with pipes: a child of this process, and pipe ends that can be passed to an event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Protocol, Self

from .launch import launch

LONG_LINE: Final = 1 << 16
"""Bytes of a line that is longer than a pipe holds at first."""


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


def widen_pipe(transport: asyncio.BaseTransport) -> None:
    """Let the pipe of a transport hold LONG_LINE * 16 bytes: then a long line passes with fewer switches of processes.

    All pipes of an unprivileged user have a limit, so this is for pipes with long lines. Other transports stay as they are.
    """
    pipe = transport.get_extra_info("pipe")
    if sys.platform == "linux" and pipe is not None:
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, LONG_LINE * 16)


class Process(Protocol):
    """A running program whose pipes we have. Its parent is this process, or the keeper of the data folder."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the number of the signal that killed it, or None while it runs."""
        ...

    def take_pipes(self) -> tuple[PipeEnd, PipeEnd, PipeEnd]:
        """Return its stdin, stdout and stderr for the event loop. Called once."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` in the event loop when `returncode` is set. Called once."""
        ...

    async def release(self) -> bool:
        """Let the end of its stdin be seen when this process closes it. Called before that, at most once.

        Return False if another node has the process by now: then this one must leave it alone.
        """
        ...


class OwnProcess:
    """A child of this process. It lives as long as the program; ChildProcess ends that."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        ruleset: int | None = None,
    ) -> None:
        """Start a program; raises as launch() does."""
        self._popen = launch(command, env=env, cwd=cwd, ruleset=ruleset)
        self._on_exit: Callable[[], None] | None = None
        self.pid = self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode

    def take_pipes(self) -> tuple[PipeEnd, PipeEnd, PipeEnd]:
        popen = self._popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        return PipeEnd.of(popen.stdin), PipeEnd.of(popen.stdout), PipeEnd.of(popen.stderr)

    def watch(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            thread = threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True)
            thread.start()
        else:
            loop.add_reader(handle, self._on_exit_readable, loop, handle)

    def reap_later(self) -> None:
        """Close its pipes that were not taken, and reap it when it ends, also after the event loop. Called at last."""
        if self._popen.returncode is None:
            threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        with self._popen:
            pass

    def _on_exit_readable(self, loop: asyncio.AbstractEventLoop, handle: int) -> None:
        loop.remove_reader(handle)
        os.close(handle)
        self._report_exit()

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        self._popen.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._report_exit)

    def _report_exit(self) -> None:
        self._popen.poll()
        if self._on_exit is not None:
            self._on_exit()

    async def release(self) -> bool:
        """Do nothing: no other process has its pipes."""
        return True
