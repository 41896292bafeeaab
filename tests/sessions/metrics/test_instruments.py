"""Histograms, the bound of series, and the use of the last hour."""

from __future__ import annotations

import pytest
from support.counting import Counting
from support.engine import engine

from statehold.sessions.errors import ApprovalRequired, ServiceUnavailable
from statehold.sessions.metrics.instruments import (
    BOUNDS,
    MAX_SERIES,
    OTHER,
    Counts,
    Histogram,
    Metrics,
    error_type,
)
from statehold.sessions.metrics.usage import SLOT_SECONDS, SLOTS, ServiceUsage

NOW = 1_800_000_000.0


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for _ in range(10):
        histogram.record(0.15)
    assert histogram.quantile(0.5) == pytest.approx(0.15)
    histogram.record(10_000.0)
    assert histogram.quantile(1.0) == BOUNDS[-1]
    assert sum(histogram.counts) == 11


def test_a_duration_at_a_bound_counts_as_not_longer() -> None:
    histogram = Histogram()
    histogram.record(BOUNDS[0])
    assert histogram.counts[0] == 1


def test_labels_beyond_the_bound_count_as_others() -> None:
    counts = Counts("tested", "A test.", "name")
    for number in range(2 * MAX_SERIES + 100):
        counts.add(f"invented_{number}")
    assert len(counts.values) == 2 * MAX_SERIES + 1
    assert counts.values[OTHER,] == [100.0]


def test_many_tools_hide_no_service() -> None:
    calls = Metrics(has_tools=True).calls
    for number in range(MAX_SERIES + 100):
        calls.record(0.1, "shop", f"tool_{number}", "")
    calls.record(0.1, "shop", "tool_0", "outcome_unknown")
    assert sum(calls.values["shop", OTHER, ""].counts) == 100
    assert sum(calls.values["shop", OTHER, "outcome_unknown"].counts) == 1


def test_only_known_outcomes_are_labels() -> None:
    outcomes = ("ok", "still_running", "error", "session_busy", "invented by a service")
    assert [error_type(each) for each in outcomes] == ["", "", "tool_error", "session_busy", OTHER]


async def test_a_call_that_is_not_sent_is_a_wait_and_no_call_of_its_service() -> None:
    async with engine(Counting(refuse=1)) as node:
        session = await node.create()
        with pytest.raises(ServiceUnavailable):
            await node.call(session.id)
        metrics = node.registry.core.metrics
        assert metrics.calls.values == {}
        assert metrics.unsent.values == {("counter", "service_unavailable"): [1.0]}
        assert sum(metrics.waits.of(("counter",)).counts) == 1


async def test_a_call_that_needs_an_approval_is_no_error_of_its_service() -> None:
    async with engine(Counting(approve="all")) as node:
        session = await node.create()
        with pytest.raises(ApprovalRequired):
            await node.call(session.id)
        metrics = node.registry.core.metrics
        assert metrics.calls.values == {}
        assert metrics.unsent.values == {("counter", "approval_required"): [1.0]}
        # Its wait is one for a person.
        assert metrics.waits.values == {}
        use = session.activity.usage_of("counter").describe(node.clock.now())
        assert (use["calls"], use["errors"]) == (1, 0)


def test_the_use_is_that_of_the_last_hour() -> None:
    usage = ServiceUsage()
    usage.record_call(NOW, 0.05, has_failed=True)
    usage.record_restart(NOW)
    usage.record_sample(NOW, 2.5, 1 << 20)
    usage.record_call(NOW + SLOT_SECONDS, 0.05, has_failed=False)
    use = usage.describe(NOW + SLOT_SECONDS)
    assert (use["calls"], use["errors"], use["restarts"]) == (2, 1, 1)
    assert (use["cpu_seconds"], use["peak_memory_bytes"]) == (2.5, 1 << 20)
    later = usage.describe(NOW + SLOTS * SLOT_SECONDS)
    assert (later["calls"], later["errors"], later["restarts"]) == (1, 0, 0)
    assert usage.describe(NOW + 2 * SLOTS * SLOT_SECONDS)["p95_seconds"] is None
