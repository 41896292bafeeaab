"""The stderr of a child: its last part, and the line in it that explains why a program ended, without escape sequences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from ...sessions.one_line import one_line

CAUSE_LENGTH: Final = 500

_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences of terminals: CSI, the strings (OSC, DCS), and two-character ones."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_BANNER: Final = re.compile(
    r"(?i)node\.js v\d|npm (?:notice|warn)|npm (?:err!|error)(?: \d{3})?\s*$"
    r"|npm (?:err!|error) (?:code|errno|path|syscall|dest|command|a complete log|log files)\b"
    r"|emitted '|hint:|help:|goroutine \d|exit status|note: run with|for further information"
    r"|caused by:\s*$|(?:run|see|try) ['\"`]?[\w -]+ --help\b"
    r"|uncaught exception:?$|[\W\d_]*$"
)
"""Lines around the cause: versions, log files, advice, brackets."""
_NPM: Final = re.compile(r"(?i)npm (?:err!|error)\s+(?:\d{3}\s+)?")
_FRAME: Final = re.compile(r"\s|at \S|[|>^~]")
"""The beginning of a line of a stack trace or of quoted source."""
_INNER_CAUSE: Final = re.compile(r"(?i)\s+(?:caused by|cause):\s+(?=\S)")
"""The beginning of a cause that `uv` and other programs in Rust write indented below their error, the innermost last."""
_CONTAINER: Final = ("docker: ", "podman: ")
_TREE: Final = re.compile(r"^\s*[\u00d7│├└╰][\s\u00d7│├└╰─▶]*|\s+$")
"""The characters with which `uv` and others draw a chain of causes, the innermost last."""


def last_cause(text: str) -> str:
    """Return the line of a program's last output that explains why it ended, without control characters.

    For a Python traceback it is the exception, for a Node error its `Error:` line, for npm the first line of its report, for
    uv its error with the innermost cause, for docker the line that begins with its name. For any other text it is the last
    line that is neither indented nor a banner.
    """
    lines = [_TREE.sub("", line) for line in without_sequences(text).splitlines() if line.strip()]
    if not lines:
        return ""
    return one_line(_cause(lines))[:CAUSE_LENGTH]


def _cause(lines: list[str]) -> str:
    start = max((n for n, line in enumerate(lines) if line.startswith(_TRACEBACK)), default=-1)
    if start >= 0:
        exception_line = next((line for line in lines[start + 1 :] if not _FRAME.match(line)), None)
        if exception_line is not None:
            return exception_line
    inner = max((n for n, line in enumerate(lines) if _INNER_CAUSE.match(line)), default=-1)
    if inner >= 0:
        outer = [line for line in lines[:inner] if _is_candidate(line)]
        return ": ".join([*outer[-1:], _INNER_CAUSE.sub("", lines[inner])])
    npm = [line for line in lines if _NPM.match(line) and not _BANNER.match(line)]
    if npm:
        return _NPM.sub("", npm[0])
    candidates = [line for line in lines if _is_candidate(line)]
    first = ("panic: ", "fatal error: ", *_CONTAINER)
    known = next((line for line in candidates if line.startswith(first)), None)
    return known or (candidates or lines)[-1].strip()


def _is_candidate(line: str) -> bool:
    return not _FRAME.match(line) and not _BANNER.match(line)


def without_sequences(text: str) -> str:
    """Return a text without the escape sequences of terminals."""
    return _SEQUENCE.sub("", text) if "\x1b" in text or "\x9b" in text else text


LINE_BYTES: Final = 8192
"""The longest part of stderr that is logged as one line."""


class OutputTail(asyncio.Protocol):
    """Reads a pipe to its end and keeps the last `size` bytes. `on_line` gets every line, unescaped.

    `beginning` is the part that another process has read already. `hide` takes secrets out.
    """

    def __init__(
        self,
        size: int,
        on_line: Callable[[str], None] | None = None,
        *,
        beginning: str = "",
        hide: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._hide = hide
        self._size = size
        self._on_line = on_line
        self._partial = b""
        self._tail = bytearray(beginning.encode())
        self._transport: asyncio.BaseTransport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > 2 * self._size:
            # Hidden before it is cut: a part of a secret would not be found.
            self._tail = bytearray(self._hide(bytes(self._tail))[-self._size :])
        if self._on_line is not None:
            *lines, self._partial = (self._partial + data).split(b"\n")
            if len(self._partial) > LINE_BYTES:
                lines, self._partial = [*lines, self._partial], b""
            for line in lines:
                if line.strip():
                    self._on_line(
                        self._hide(line)[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
                    )

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.ended.set()

    def abort(self) -> None:
        """Close the pipe now."""
        if self._transport is not None:
            self._transport.close()

    @property
    def text(self) -> str:
        return self._hide(bytes(self._tail))[-self._size :].decode("utf-8", "replace")
