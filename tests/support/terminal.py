"""A program in a terminal of its own, with the screen that a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyte

SECONDS = 30.0


class ScreenTerminal:
    """A terminal, its screen, and the program in it. `resize` may be called while the program runs."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen: Any = pyte.Screen(columns, rows)
        self._stream: Any = pyte.ByteStream(self.screen)
        self.controller, self.end = pty.openpty()
        self.received = bytearray()
        """Everything that the program wrote."""
        self.process: subprocess.Popen[bytes] | None = None
        self._set_size(columns, rows)
        self.first_settings = self.settings
        """The settings before the program started."""

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def settings(self) -> list[Any]:
        """The settings of the terminal, such as whether it echoes."""
        return termios.tcgetattr(self.end)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def start(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=self.end,
            stdout=self.end,
            stderr=self.end,
            env=environ,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def press(self, keys: str) -> None:
        os.write(self.controller, keys.encode())

    def read(self, seconds: float) -> None:
        """Take in what the program has written, after at most `seconds`."""
        if select.select([self.controller], [], [], seconds)[0]:
            data = os.read(self.controller, 1 << 16)
            self.received += data
            self._stream.feed(data)

    def wait_for(self, is_seen: Callable[[Sequence[str]], bool], what: str) -> None:
        """Read until the lines of the screen fit."""
        deadline = time.monotonic() + SECONDS
        while not is_seen(self.lines):
            assert time.monotonic() < deadline, (what, *self.lines)
            self.read(0.2)

    def wait_for_text(self, *texts: str) -> None:
        """Read until one line has all these texts."""
        self.wait_for(
            lambda lines: any(all(text in line for text in texts) for line in lines), repr(texts)
        )

    def wait_for_end(self) -> int:
        """Read until the program ends, and return its exit code; negative for a signal."""
        assert self.process is not None
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.lines
            self.read(0.1)
        while select.select([self.controller], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode


@contextmanager
def program_in_terminal(
    command: Sequence[str], *, columns: int = 80, rows: int = 24, term: str = "xterm-256color"
) -> Generator[ScreenTerminal]:
    """Run a program in a terminal. It is killed at the end of the block if it still runs."""
    environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    terminal = ScreenTerminal(columns, rows)
    try:
        terminal.start(command, {**environ, "TERM": term})
        yield terminal
    finally:
        if terminal.process is not None and terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait(10)
        os.close(terminal.controller)
        os.close(terminal.end)


__all__ = ["ScreenTerminal", "program_in_terminal"]
