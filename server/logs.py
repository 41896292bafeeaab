"""Log lines on stderr: one readable line or one JSON object per event, never on stdout."""

from __future__ import annotations

import json
import logging
import sys
import time

from .config import LogSettings


class JsonLines(logging.Formatter):
    """One JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, and `exception` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")


def configure(settings: LogSettings) -> None:
    """Send the log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Of libraries only what is wrong: their notes may quote what callers sent.
    for name in ("mcp", "uvicorn", "httpx2", "httpcore2", "aiosqlite", "sqlalchemy", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)


__all__ = ["configure"]
