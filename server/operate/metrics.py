"""The metrics of one process as text for Prometheus.

Instruments and gauges are copied in the event loop, and written as text in a thread, so that a scrape blocks no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from starlette.requests import Request
from starlette.responses import Response

from ...sessions.lifecycle import Status
from ...sessions.metrics.instruments import BOUNDS, Counts, Durations, Histogram
from ...sessions.records import SessionDriver
from ..gateway.gateway import Gateway

Gauge: TypeAlias = tuple[str, str, tuple[str, ...], Mapping[tuple[str, ...], float]]
"""Name, help, names of the labels, and the value of each combination of them."""

_LIMITS: Final = (*map(str, BOUNDS), "+Inf")


@dataclass(frozen=True, slots=True)
class _Copy:
    """The values of one instrument at one moment."""

    source: Counts | Durations
    durations: Mapping[tuple[str, ...], Histogram]
    counts: Mapping[tuple[str, ...], float]

    def family(self) -> Metric:
        name, text, labels = self.source.name, self.source.text, self.source.labels
        if isinstance(self.source, Counts):
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, count in self.counts.items():
                counter.add_metric(values, count)
            return counter
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, each in self.durations.items():
            buckets = list(zip(_LIMITS, map(float, accumulate(each.counts)), strict=True))
            histogram.add_metric(values, buckets, each.total)
        return histogram


class _Collector(Collector):
    """The families of one scrape."""

    def __init__(self, copies: list[_Copy], gauges: list[Gauge]) -> None:
        self._copies = copies
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for copy in self._copies:
            yield copy.family()
        for name, text, labels, values in self._gauges:
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for combination, value in values.items():
                gauge.add_metric(combination, value)
            yield gauge


class MetricsPage:
    """The answer to `GET /metrics`. It lives as long as the process; scrapes may run at the same time."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request) -> Response:
        copies = [_copy(each) for each in self._gateway.registry.core.metrics.instruments()]
        text = await anyio.to_thread.run_sync(
            self._write, [*copies, self._writes()], self._gauges()
        )
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    def _write(self, copies: list[_Copy], gauges: list[Gauge]) -> bytes:
        if (size := self._gateway.store.size()) is not None:
            gauges.append(("statehold_store_bytes", "Bytes of the store.", (), {(): size}))
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Collector(copies, gauges))
        return generate_latest(registry)

    def _writes(self) -> _Copy:
        source = Durations("statehold_store_write", "Write transactions of the store.")
        return _Copy(source, {(): self._gateway.store.write_durations.copy()}, {})

    def _gauges(self) -> list[Gauge]:
        gateway, registry = self._gateway, self._gateway.registry
        sessions, store = registry.owned_sessions(), gateway.store
        statuses = Counter(session.status for session in sessions)
        asking = sum(
            session.record.control.driver is SessionDriver.REQUESTED for session in sessions
        )
        places = registry.core.budget.statistics()
        unavailable = sum(each["status"] == "unavailable" for each in gateway.describe_services())
        numbers = {
            "statehold_calls_in_flight": (
                "Calls that run or wait.",
                sum(session.in_flight for session in sessions),
            ),
            "statehold_places": ("Sessions that may have connections.", places.limit),
            "statehold_places_used": ("Sessions that have connections.", places.used),
            "statehold_places_idle": ("Those of them that can be paused.", places.idle),
            "statehold_queue": ("Calls that wait for a place.", places.waiting),
            "statehold_persons_wanted": ("Sessions whose agents wait for a person.", asking),
            "statehold_services_unavailable": ("Services that do not answer.", unavailable),
            "statehold_store_up": ("Whether the store takes writes.", store.trouble is None),
            "statehold_store_waiting": ("Changes that wait for the store.", store.waiting_writes),
            "statehold_journal_dropped": ("Journal entries given up.", store.dropped_entries),
        }
        held = {(status.value,): float(statuses[status]) for status in Status}
        text = "Sessions that this process holds."
        gauges: list[Gauge] = [("statehold_sessions", text, ("status",), held)]
        gauges += [(name, text, (), {(): value}) for name, (text, value) in numbers.items()]
        return gauges


def _copy(source: Counts | Durations) -> _Copy:
    if isinstance(source, Counts):
        return _Copy(source, {}, {labels: value[0] for labels, value in source.values.items()})
    return _Copy(source, {labels: each.copy() for labels, each in source.values.items()}, {})
