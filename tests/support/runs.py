"""The log that the upstream `quick` writes of the calls that it runs, with its option `--log`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def runs(log: Path) -> Counter[str]:
    """Return how often each call ran, by the argument `mark`."""
    return Counter(entry["arguments"]["mark"] for entry in entries(log))


async def wait_for_call(log: Path, tool: str) -> dict[str, Any]:
    """Wait at most 20 seconds until a call of a tool is running, and return its log entry."""
    with anyio.fail_after(20):
        while True:
            matches = [entry for entry in entries(log) if entry["tool"] == tool]
            if matches:
                return matches[0]
            await anyio.sleep(0.01)


async def wait_for_cancellation(log: Path) -> None:
    """Wait at most 20 seconds until the upstream was told to cancel a call."""
    with anyio.fail_after(20):
        while not any(  # noqa: ASYNC110 - another process writes the log
            entry.get("event") == "cancelled" for entry in entries(log)
        ):
            await anyio.sleep(0.01)


def clear(log: Path) -> None:
    log.unlink(missing_ok=True)
