"""The metrics of one process as text for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

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

_LIMITS: Final = (*map(str, BOUNDS), "+Inf")


async def metrics_page(gateway: Gateway) -> Response:
    """Return the answer to `GET /metrics`. It is written in a thread, so that a scrape blocks no call."""
    text = await anyio.to_thread.run_sync(_write, gateway, _gauges(gateway))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _write(gateway: Gateway, gauges: Iterable[Metric]) -> bytes:
    store, instruments = gateway.store, gateway.registry.core.metrics.instruments()
    families = [*map(_family, [*instruments, store.write_durations]), *gauges]
    if (size := store.size()) is not None:
        families.append(GaugeMetricFamily("statehold_store_bytes", "Bytes of the store.", size))
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    """The families of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


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


def _gauges(gateway: Gateway) -> list[Metric]:
    registry, store = gateway.registry, gateway.store
    sessions, places = registry.owned_sessions(), registry.core.budget.statistics()
    statuses = Counter(session.status for session in sessions)
    asking = sum(session.record.control.driver is SessionDriver.REQUESTED for session in sessions)
    down = sum(each["status"] == "unavailable" for each in gateway.describe_services())
    in_flight = sum(session.in_flight for session in sessions)
    held = GaugeMetricFamily(
        "statehold_sessions", "Sessions that this process holds.", labels=("status",)
    )
    for status in Status:
        held.add_metric((status.value,), statuses[status])
    gauges = {
        "calls_in_flight": ("Calls that run or wait.", in_flight),
        "places": ("Sessions that may have connections.", places.limit),
        "places_used": ("Sessions that have connections.", places.used),
        "places_idle": ("Sessions among them that can be paused.", places.idle),
        "queue": ("Calls that wait for a place.", places.waiting),
        "persons_wanted": ("Sessions whose agents wait for a person.", asking),
        "services_unavailable": ("Services that do not answer.", down),
        "store_up": ("Whether the store takes writes.", store.trouble is None),
        "journal_dropped": ("Journal entries given up.", store.dropped_entries),
    }
    families = (
        GaugeMetricFamily(f"statehold_{name}", text, value)
        for name, (text, value) in gauges.items()
    )
    return [held, *families]
