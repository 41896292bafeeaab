"""The log of a session's calls, as Markdown for people."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from ....sessions.journal.secret_texts import SecretTexts
from ....sessions.services import CallResult
from ...processes.workdir import private_folder

logger = logging.getLogger("statehold.browser")

LONGEST: Final = 100_000
"""The most characters of one section of a result in the log."""
_HEADING: Final = re.compile(r"^### (.+)\n", re.MULTILINE)


class CallLog:
    """A file that grows by an entry for each call, up to `largest` bytes. It has no secret texts of the calls.

    It outlives the browser. A log that cannot be written fails no call.
    """

    def __init__(self, path: Path, *, largest: int) -> None:
        self._path = path
        self._largest = largest

    async def add(self, tool: str, arguments: Mapping[str, Any], result: CallResult) -> None:
        """Add a call with its result."""
        secrets = SecretTexts(result.secrets)
        outcome = _sections_of(result)
        parts = [f"### Tool call: {tool}"]
        for title, value in (("Args", dict(arguments)), ("Result", outcome)):
            text = json.dumps(_without(secrets, value), ensure_ascii=False, indent=2)
            parts += [f"- {title}", f"```json\n{text}\n```"]
        try:
            await anyio.to_thread.run_sync(self._append, "\n".join(["", *parts, ""]))
        except OSError as error:
            logger.warning("the log of calls of a session was not written: %s", error.strerror)

    def _append(self, text: str) -> None:
        private_folder(self._path.parent)
        data = text.encode(errors="replace")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            if file.tell() + len(data) <= self._largest:
                file.write(data)


def _without(secrets: SecretTexts, value: object) -> object:
    """Return a JSON value without secret texts."""
    match value:
        case str():
            return secrets.hide(value)
        case list():
            return [_without(secrets, member) for member in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value).items()
            return {key: _without(secrets, member) for key, member in members}
        case _:
            return value


def _sections_of(result: CallResult) -> dict[str, object]:
    """Return the sections of a result by their headings."""
    text = next((b["text"] for b in result.payload["content"] if b["type"] == "text"), "")
    _, *parts = _HEADING.split(text)
    sections: dict[str, object] = {
        name: content.strip()[:LONGEST]
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    }
    return {"isError": True, **sections} if result.is_error else sections


__all__ = ["CallLog"]
