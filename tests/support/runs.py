"""The log that the upstream `quick` writes of the calls that it runs, with its option `--log`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .waiting import until


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def runs(log: Path) -> Counter[str]:
    """Return how often each call ran, by the argument `mark`."""
    return Counter(entry["arguments"]["mark"] for entry in entries(log))


async def wait_for_call(log: Path, tool: str) -> dict[str, Any]:
    """Wait at most 20 seconds until a call of a tool is running, and return its log entry."""
    matches = await until(lambda: [entry for entry in entries(log) if entry["tool"] == tool])
    return matches[0]


async def wait_for_cancellation(log: Path) -> None:
    """Wait at most 20 seconds until the upstream was told to cancel a call."""
    await until(lambda: any(entry.get("event") == "cancelled" for entry in entries(log)))


def clear(log: Path) -> None:
    log.unlink(missing_ok=True)
