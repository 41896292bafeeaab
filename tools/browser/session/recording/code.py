"""The code of a session's calls between two tools, for browser_start_recording and browser_stop_recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...errors import BrowserToolFailed

MAX_LINES: Final = 2000
"""Lines of a recording; the number of those left out is added as a comment."""


class RecordedCode:
    """Collects the code of one session's calls from begin() to end(). A connection that ends loses it, and reports that."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None
        self._omitted = 0

    @property
    def is_on(self) -> bool:
        return self._lines is not None

    def begin(self) -> None:
        """Begin a recording.

        Raises:
            BrowserToolFailed: one is on already.
        """
        if self._lines is not None:
            raise BrowserToolFailed(
                "A recording is going on already; browser_stop_recording ends it."
            )
        self._lines, self._omitted = [], 0

    def add(self, lines: Sequence[str]) -> None:
        """Add the lines of a call. Does nothing while no recording is on."""
        if self._lines is not None:
            room = MAX_LINES - len(self._lines)
            self._lines += lines[:room]
            self._omitted += len(lines[room:])

    def end(self) -> list[str]:
        """End the recording and return its lines.

        Raises:
            BrowserToolFailed: none is on.
        """
        if self._lines is None:
            raise BrowserToolFailed("No recording is going on; browser_start_recording begins one.")
        omitted = [f"# {self._omitted} more lines were left out"] if self._omitted else []
        lines, self._lines = [*self._lines, *omitted], None
        return lines
