"""The metrics of one process as text for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

import anyio.to_thread
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.responses import Response

from ...sessions.lifecycle import Status
from ...sessions.metrics.instruments import BOUNDS, Counts, Durations
from ...sessions.records import SessionDriver
from ..gateway.gateway import Gateway

Gauges: TypeAlias = Mapping[str, tuple[str, float]]
"""Help and value of each gauge."""

_LIMITS: Final = (*map(str, BOUNDS), "+Inf")


async def metrics_page(gateway: Gateway) -> Response:
    """Return the answer to `GET /metrics`. It is written in a thread, so that a scrape blocks no call."""
    statuses = Counter(session.status for session in gateway.registry.owned_sessions())
    gauges = _gauges(gateway)
    text = await anyio.to_thread.run_sync(_write, gateway, statuses, gauges)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _write(gateway: Gateway, statuses: Mapping[Status, int], gauges: Gauges) -> bytes:
    store, instruments = gateway.store, gateway.registry.core.metrics.instruments()
    if (size := store.size()) is not None:
        gauges = {**gauges, "statehold_store_bytes": ("Bytes of the store.", size)}
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collector([*instruments, store.write_durations], statuses, gauges))
    return generate_latest(registry)


class _Collector(Collector):
    """The families of one scrape."""

    def __init__(
        self,
        instruments: Iterable[Counts | Durations],
        statuses: Mapping[Status, int],
        gauges: Gauges,
    ) -> None:
        self._instruments = instruments
        self._statuses = statuses
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        yield from map(_family, self._instruments)
        held = GaugeMetricFamily(
            "statehold_sessions", "Sessions that this process holds.", labels=("status",)
        )
        for status in Status:
            held.add_metric((status.value,), self._statuses.get(status, 0))
        yield held
        for name, (text, value) in self._gauges.items():
            yield GaugeMetricFamily(name, text, value)


def _family(source: Counts | Durations) -> Metric:
    # The event loop adds values meanwhile; list() copies them in one step.
    if isinstance(source, Counts):
        counter = CounterMetricFamily(source.name, source.text, labels=source.labels)
        for labels, count in list(source.values.items()):
            counter.add_metric(labels, count[0])
        return counter
    histogram = HistogramMetricFamily(source.name, source.text, labels=source.labels)
    for labels, each in list(source.values.items()):
        counts = map(float, accumulate(list(each.counts)))
        histogram.add_metric(labels, list(zip(_LIMITS, counts, strict=True)), each.total)
    return histogram


def _gauges(gateway: Gateway) -> Gauges:
    registry, store = gateway.registry, gateway.store
    sessions, places = registry.owned_sessions(), registry.core.budget.statistics()
    asking = sum(session.record.control.driver is SessionDriver.REQUESTED for session in sessions)
    down = sum(each["status"] == "unavailable" for each in gateway.describe_services())
    in_flight = sum(session.in_flight for session in sessions)
    return {
        "statehold_calls_in_flight": ("Calls that run or wait.", in_flight),
        "statehold_places": ("Sessions that may have connections.", places.limit),
        "statehold_places_used": ("Sessions that have connections.", places.used),
        "statehold_places_idle": ("Sessions among them that can be paused.", places.idle),
        "statehold_queue": ("Calls that wait for a place.", places.waiting),
        "statehold_persons_wanted": ("Sessions whose agents wait for a person.", asking),
        "statehold_services_unavailable": ("Services that do not answer.", down),
        "statehold_store_up": ("Whether the store takes writes.", store.trouble is None),
        "statehold_store_waiting": ("Changes that wait for the store.", store.waiting_writes),
        "statehold_journal_dropped": ("Journal entries given up.", store.dropped_entries),
    }
