"""Log lines on stderr: one readable line or one JSON object per event, never on stdout.

Messages may quote programs and callers. Such text is escaped, so that it cannot begin a line or control a terminal, and
the secrets of the configuration are replaced, also in messages of libraries and in tracebacks.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import anyio

from ...sessions.journal.redaction import Redactor
from ...sessions.live.session import logged_session
from ...sessions.metrics.spans import trace_id
from ...sessions.one_line import escape_controls
from ...sessions.owned_map import BoundedMap
from ...sessions.times import timestamp
from ..config.sections import LogSettings

QUIET_SECONDS: Final = 1.0
"""Seconds for which a message of a library is left out after it was written once."""

MAX_REMEMBERED_MESSAGES: Final = 256
"""Library messages that are remembered at once. Some contain a client's address, so there may be any number."""

_CLIENT_LIBRARIES: Final = ("uvicorn", "mcp", "opentelemetry")
"""The libraries whose messages clients can cause."""
_DISCONNECTS: Final = (
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    CancelledError,
)
"""Errors of requests whose client is gone, or had not sent all of it when the server stopped."""


class JsonLines(logging.Formatter):
    """One JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `trace_id` within a trace, `session`
    and `name` of a call, and `exception` with a traceback.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._redactor = Redactor(keys=(), secrets=secrets)

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.without_known(record.getMessage()),
        }
        if (trace := trace_id()) is not None:
            fields["trace_id"] = trace
        if (session := logged_session.get()) is not None:
            fields["session"], name = session.logged
            fields["name"] = self._redactor.without_known(name or "")
        if record.exc_info:
            exception = self.formatException(record.exc_info)
            fields["exception"] = self._redactor.without_known(exception)
        line = json.dumps(fields, ensure_ascii=False)
        return line if line.isprintable() else json.dumps(fields)


class TextLines(logging.Formatter):
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redactor = Redactor(keys=(), secrets=secrets)
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Redact before escaping; an escaped secret would not be recognised.
        return escape_controls(self._redactor.without_known(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:
        # Indented, because an exception may quote a text that looks like a line of the log.
        lines = self._redactor.without_known(super().formatException(ei)).splitlines()
        return "\n".join(f"  {escape_controls(line)}" for line in lines)


class ClientMistakes(logging.Filter):
    """Limits the messages that clients can make libraries log. A filter of the process's handler.

    A message is written at most once in QUIET_SECONDS, with the number of those left out. An exception of a disconnected
    client, or of a request that a stop of the server cancelled, is left out. So is the traceback of a malformed message,
    which quotes it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last_lines = BoundedMap[str, tuple[float, int]](MAX_REMEMBERED_MESSAGES)

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_CLIENT_LIBRARIES):
            return True
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__name__ == "ValidationError":
            record.exc_info = record.exc_text = None
        elif error is not None:
            return not _is_disconnect(error)
        now, key = self._clock(), str(record.msg)
        last, left_out = self._last_lines.get(key, (-QUIET_SECONDS, 0))
        if now - last < QUIET_SECONDS:
            self._last_lines[key] = (last, left_out + 1)
            return False
        self._last_lines[key] = (now, 0)
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more before)"
            record.args = ()
        return True


def _is_disconnect(error: BaseException) -> bool:
    """Whether an exception only means that a client disconnected."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_disconnect, group.exceptions))
    # By its name, since a stdio server does not import Starlette.
    return isinstance(error, _DISCONNECTS) or type(error).__name__ == "ClientDisconnect"


def configure(settings: LogSettings, secrets: Iterable[str]) -> None:
    """Send the log of this process to stderr, without `secrets`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonLines if settings.format == "json" else TextLines)(secrets))
    handler.addFilter(ClientMistakes())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Only warnings of libraries: their information and debug messages quote callers.
    for name in ("mcp", "uvicorn", "httpx2", "httpcore2", "aiosqlite", "sqlalchemy", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its errors are network errors of upstreams, with a traceback. Our connections report each loss in one line.
    logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL)
