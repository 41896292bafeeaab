"""The sessions of a server elsewhere, by its MCP tools: session_list, and session_info for the one that is selected."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ...server.sockets.request import as_list, as_object
from ...sessions.lifecycle import OPEN
from ..call.connection import Failure, OutOfTime, RequestFailed, ServerLost
from ..call.remote import RemoteConnection
from ..call.words import Words
from .local import TOOLS
from .sample import Sample, SessionRow, listed_row, sort_rows

READ_SECONDS: Final = 10.0
ACT_SECONDS: Final = 125.0
LIMIT: Final = 200
NOTE: Final = "over MCP: no calls per second, no memory"

_FAILURES: Final = (Failure, OutOfTime, RequestFailed, ServerLost)


class RemoteSource:
    """A server at an address; see Source.

    Raises:
        WrongUsage: the address or the file of the token is wrong.
    """

    note = NOTE
    interval = 2.0

    def __init__(self, url: str, token_file: str | None) -> None:
        words = [f"--url={url}", *([] if token_file is None else [f"--token-file={token_file}"])]
        self._words = Words("tools", words)
        self._reading = RemoteConnection(self._words, None, pinned=False)
        self._lock = threading.Lock()
        self.title = urlsplit(url).netloc

    def read(self, selected: str | None) -> Sample:
        try:
            with self._lock:
                arguments = {"limit": LIMIT, "statuses": sorted(OPEN)}
                page = _call(self._reading, "session_list", arguments, READ_SECONDS)
                sessions = [as_object(each) for each in as_list(page["sessions"])]
                info = self._info(selected, sessions)
        except _FAILURES as error:
            return Sample(time.monotonic(), problem=_reason(error))
        rows = [
            listed_row(each, info if each["session_id"] == selected else None) for each in sessions
        ]
        return Sample(time.monotonic(), sort_rows(rows), 1)

    def _info(
        self, selected: str | None, sessions: list[dict[str, Any]]
    ) -> Mapping[str, Any] | None:
        if all(each["session_id"] != selected for each in sessions):
            return None
        try:
            return _call(self._reading, "session_info", {"session_id": selected}, READ_SECONDS)
        except Failure:
            # It was closed in between.
            return None

    def act(self, row: SessionRow, action: str) -> str:
        # A connection of its own: the other one is not to wait for it.
        connection = RemoteConnection(self._words, None, pinned=False)
        try:
            content = _call(connection, TOOLS[action], {"session_id": row.id}, ACT_SECONDS)
        except _FAILURES as error:
            return f"{row.title}: {_reason(error)}"
        finally:
            connection.close()
        return f"{row.title} is {content['status']}"


def _call(
    connection: RemoteConnection, tool: str, arguments: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Call one of Statehold's own tools and return the content of its result.

    Raises:
        Failure: the tool refused, or the server has no such tool.
        OutOfTime, RequestFailed, ServerLost: there is no answer.
    """
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": {}}
    result = connection.request("tools/call", params, seconds=seconds)
    if result.get("isError") is True:
        texts = [str(as_object(each).get("text", "")) for each in as_list(result.get("content"))]
        raise Failure(" ".join(" ".join(texts).split()))
    return as_object(result.get("structuredContent"))


def _reason(error: Exception) -> str:
    if isinstance(error, OutOfTime):
        return "the server does not answer in time"
    if isinstance(error, ServerLost):
        return "the server hung up"
    return str(error)
