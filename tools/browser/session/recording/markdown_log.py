"""The calls of a session as texts: their log in Markdown for people, and their code."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from .....sessions.journal.redaction import Redactor
from .....sessions.journal.secret_names import REDACTED
from .....sessions.journal.secret_texts import SecretTexts
from .....sessions.services import ToolResult
from ....processes.workdir import private_folder
from ...errors import BrowserToolFailed
from ...secrets.spellings import mask_logins
from ..output_folder import OutputFolder

logger = logging.getLogger("statehold.browser")

NAME: Final = "session.md"
"""The name of the log among the files of its session."""
MAX_CHARACTERS: Final = 100_000
"""The most characters of one text in the log."""
ROOM: Final = 4 * MAX_CHARACTERS
"""The most characters of the arguments, and of the result, in the log."""
_HEADING: Final = re.compile(r"^### (.+)\n", re.MULTILINE)
_REDACTOR: Final = Redactor()


class CallRecording:
    """A file that grows by an entry for each call, up to `largest` bytes. It has no secret texts of the calls.

    It outlives the browser. A log that cannot be written fails no call. In an output folder, close() lets it be removed to
    make room for others.
    """

    def __init__(self, path: Path, *, largest: int, output: OutputFolder | None = None) -> None:
        self._path = path
        self._largest = largest
        self._output = output
        if output is not None:
            output.open_logs.add(path)

    def close(self) -> None:
        if self._output is not None:
            self._output.open_logs.discard(self._path)

    async def add(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: ToolResult,
        *,
        hides_result: bool = False,
    ) -> None:
        """Add a call with its result. `hides_result`: its section Result is a list of secrets."""
        try:
            await anyio.to_thread.run_sync(self._add, tool, arguments, result, hides_result)
        except OSError as error:
            logger.warning("the log of calls of a session was not written: %s", error.strerror)

    def _add(
        self, tool: str, arguments: Mapping[str, Any], result: ToolResult, hides_result: bool
    ) -> None:
        private_folder(self._path.parent)
        data = _entry(tool, arguments, result, hides_result).encode(errors="replace")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            if file.tell() + len(data) <= self._largest:
                file.write(data)
        if self._output is not None:
            self._output.evict()


def _entry(tool: str, arguments: Mapping[str, Any], result: ToolResult, hides_result: bool) -> str:
    secrets = SecretTexts(result.secrets)
    sections = _sections_of(result)
    if hides_result:
        sections["Result"] = REDACTED
    parts = [f"### Tool call: {tool}"]
    for title, value in (("Args", dict(arguments)), ("Result", sections)):
        redacted = _REDACTOR.value(value, MAX_CHARACTERS, room=ROOM, secrets=secrets)
        text = mask_logins(json.dumps(redacted, ensure_ascii=False, indent=2))
        parts += [f"- {title}", f"```json\n{text}\n```"]
    return "\n".join(["", *parts, ""])


def _sections_of(result: ToolResult) -> dict[str, object]:
    """Return the sections of a result by their headings."""
    text = next((b["text"] for b in result.payload["content"] if b["type"] == "text"), "")
    _, *parts = _HEADING.split(text)
    sections: dict[str, object] = {
        name: content.strip() for name, content in zip(parts[::2], parts[1::2], strict=True)
    }
    return {"isError": True, **sections} if result.is_error else sections


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
