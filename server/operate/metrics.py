"""The metrics of one process in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import anyio.to_thread
from starlette.responses import Response

from ...sessions.lifecycle import Status
from ...sessions.live.budget import BudgetStatistics
from ...sessions.live.session import LiveSession
from ...sessions.metrics.instruments import BOUNDS, Counts, Durations
from ...sessions.records import SessionDriver
from ...tools.processes import procfs
from ..gateway.gateway import Gateway

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
_LIMITS: Final = (*map(str, BOUNDS), "+Inf")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


async def metrics_page(gateway: Gateway) -> Response:
    """Return the answer to `GET /metrics`. It is written in a thread, so that a scrape blocks no call."""
    sessions, places = gateway.registry.owned_sessions(), gateway.registry.core.budget.statistics()
    text = await anyio.to_thread.run_sync(_write, gateway, sessions, places)
    return Response(text, media_type=MEDIA_TYPE)


def _write(gateway: Gateway, sessions: Sequence[LiveSession], places: BudgetStatistics) -> str:
    instruments = gateway.registry.core.metrics.instruments()
    lines: list[str] = []
    for instrument in (*instruments, gateway.store.write_durations):
        lines += _instrument(instrument)
    # count() compares identities: it is the fastest way to count the members of an enumeration.
    statuses = [session.status for session in sessions]
    lines += _head("statehold_sessions", "gauge", "Sessions that this process holds.")
    lines += (f'statehold_sessions{{status="{each}"}} {statuses.count(each)}' for each in Status)
    for name, text, value in _values(gateway, sessions, places):
        if value is not None:
            lines += _head(name, "counter" if name.endswith("_total") else "gauge", text)
            lines.append(f"{name} {value}")
    return "\n".join(lines) + "\n"


def _instrument(source: Counts | Durations) -> Iterator[str]:
    name = source.name
    yield from _head(name, "counter" if isinstance(source, Counts) else "histogram", source.text)
    # The event loop adds values meanwhile; list() copies them in one step.
    for labels, value in list(source.values.items()):
        pairs = ",".join(
            f'{label}="{each.translate(_ESCAPED)}"'
            for label, each in zip(source.labels, labels, strict=True)
        )
        if isinstance(value, list):
            yield f"{name}{{{pairs}}} {value[0]}"
            continue
        total, begin = 0, f"{name}_bucket{{{pairs}{',' if pairs else ''}le="
        for limit, total in zip(_LIMITS, accumulate(list(value.counts)), strict=True):
            yield f'{begin}"{limit}"}} {total}'
        yield f"{name}_count{{{pairs}}} {total}"
        yield f"{name}_sum{{{pairs}}} {value.total}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _values(
    gateway: Gateway, sessions: Sequence[LiveSession], places: BudgetStatistics
) -> Iterable[tuple[str, str, float | None]]:
    """Return name, text and value of each metric without labels. A value that this system does not have is None."""
    store = gateway.store
    drivers = [session.record.control.driver for session in sessions]
    in_flight = sum(session.in_flight for session in sessions)
    asking, down = drivers.count(SessionDriver.REQUESTED), len(gateway.probes.problems)
    memory = procfs.resident_memory(os.getpid())
    return (
        ("statehold_calls_in_flight", "Calls that run or wait.", in_flight),
        ("statehold_places", "Sessions that may have connections.", places.limit),
        ("statehold_places_used", "Sessions that have connections.", places.used),
        ("statehold_places_idle", "Sessions among them that can be paused.", places.idle),
        ("statehold_queue", "Calls that wait for a place.", places.waiting),
        ("statehold_persons_wanted", "Sessions whose agents wait for a person.", asking),
        ("statehold_services_unavailable", "Services that do not answer.", down),
        ("statehold_store_up", "Whether the store takes writes.", int(store.trouble is None)),
        ("statehold_store_bytes", "Bytes of the store.", store.size()),
        ("statehold_journal_dropped", "Journal entries given up.", store.dropped_entries),
        ("process_cpu_seconds_total", "CPU time of the process.", time.process_time()),
        ("process_resident_memory_bytes", "Memory of the process.", memory),
    )
