"""The sessions as one table, for an output that is no terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from ...server.exit_codes import FAILURE, OK
from ...server.printing import complain
from ..output import Column, ago, fitted_table, say, span
from .sample import CallRow, Rates, Sample, SessionRow, Source

SECONDS: Final = 1.0
"""Seconds between the two looks from which the table has the calls per second."""


def print_table(source: Source, first: Sample) -> int:
    """Print the sessions as they are a second after the first look. Return the exit code."""
    rates = Rates()
    rates.update(first.at, first.rows)
    time.sleep(SECONDS)
    sample = source.read(None)
    if sample.problem:
        return complain(sample.problem, FAILURE)
    if not sample.rows:
        say(f"no session is open in {source.title}")
        return OK
    say(_table(sample.rows, rates.update(sample.at, sample.rows), time.time()))
    return OK


def _table(rows: Sequence[SessionRow], rates: Mapping[str, float], now: float) -> str:
    columns = {
        "SESSION": [row.title for row in rows],
        "STATUS": [_status(row, now) for row in rows],
        "CALLS/S": [f"{rates[row.id]:.1f}" if row.id in rates else None for row in rows],
        "MEMORY": [_memory(row) for row in rows],
        "NOW": [", ".join(_running(call, now) for call in row.running) or row.busy for row in rows],
        "LAST CALL": [_last(row, now) for row in rows],
    }
    return fitted_table([Column(head, cells, rank=9) for head, cells in columns.items()])


def _status(row: SessionRow, now: float) -> str:
    return row.status if row.since is None else f"{row.status} for {span(now - row.since)}"


def _memory(row: SessionRow) -> str:
    if row.memory is None:
        return ""
    return f"{'~' if row.shares_memory else ''}{row.memory / 2**20:.0f} MB"


def _running(call: CallRow, now: float) -> str:
    return f"{call.state} {span(now - call.at)}: {call.tool}"


def _last(row: SessionRow, now: float) -> str:
    if row.last is None:
        return "" if row.used_at is None else f"used {ago(row.used_at, now)}"
    return f"{row.last.state} {ago(row.last.at, now)}: {row.last.tool}"
