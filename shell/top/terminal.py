"""The keys of a terminal, and the signals of a program that owns its screen."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_SEQUENCES: Final = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page up",
    "[6~": "page down",
}
_CHARACTERS: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}
_SEQUENCE_SECONDS: Final = 0.05
"""Seconds that the rest of the sequence of a key may take; the escape key sends its beginning alone."""
_SIGNAL_BASE: Final = 128


class Terminal:
    """The terminal at stdin. Lives until close(); the settings of the terminal are changed only within raw()."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self.is_suspended = False
        """Set by Ctrl-Z."""

    def close(self) -> None:
        os.close(self._woken)
        # Threads that still run may write to the other end: it ends with the process.

    def wake(self) -> None:
        """Have read_keys() return. May be called from any thread and from a signal handler."""
        with suppress(OSError):
            os.write(self._waker, b"\0")

    @contextmanager
    def raw(self) -> Generator[None]:
        """Read single keys, without echo, until the block ends, also by a signal; the settings are restored then.

        SIGTERM and SIGHUP end the block with SystemExit, Ctrl-C with KeyboardInterrupt.
        """
        settings = termios.tcgetattr(self._input)
        handlers = {
            signal.SIGTERM: _end,
            signal.SIGHUP: _end,
            signal.SIGINT: _end,
            signal.SIGWINCH: self._note_size,
            signal.SIGTSTP: self._suspend,
        }
        earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            tty.setcbreak(self._input)
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, settings)
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def suspend(self) -> None:
        """Stop the process until the shell continues it. Call it outside of raw()."""
        self.is_suspended = False
        os.kill(os.getpid(), signal.SIGSTOP)

    def _note_size(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self.is_suspended = True
        self.wake()

    def read_keys(self, seconds: float) -> list[str]:
        """Return the keys that were pressed, after at most `seconds`: characters, or names such as `up`.

        Raises:
            EOFError: the terminal is gone.
        """
        ready, _, _ = select.select([self._input, self._woken], [], [], seconds)
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._input not in ready:
            return []
        text = self._read()
        while text.endswith("\x1b") or text[-2:] in ("\x1b[", "\x1bO"):
            if not select.select([self._input], [], [], _SEQUENCE_SECONDS)[0]:
                break
            text += self._read()
        return list(_keys(text))

    def _read(self) -> str:
        try:
            data = os.read(self._input, 1024)
        except OSError:
            data = b""
        if not data:
            raise EOFError
        return data.decode(errors="ignore")


def _keys(text: str) -> Generator[str]:
    while text:
        if text[0] != "\x1b":
            yield _CHARACTERS.get(text[0], text[0])
            text = text[1:]
            continue
        sequence = next((one for one in _SEQUENCES if text.startswith(one, 1)), None)
        if sequence is not None:
            yield _SEQUENCES[sequence]
            text = text[1 + len(sequence) :]
        elif text[1:2] in ("[", "O"):
            # Another key, such as F1: up to its last character.
            end = next((n for n, char in enumerate(text[2:], 3) if "@" <= char <= "~"), len(text))
            text = text[end:]
        else:
            yield "escape"
            text = text[1:]


def _end(number: int, frame: FrameType | None) -> None:
    # A second signal is not to interrupt the restoring of the terminal.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(_SIGNAL_BASE + number)
