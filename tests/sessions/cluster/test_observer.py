"""The observation of other nodes: silent after one whole lease of the same beat, and never after a time without a look."""

from __future__ import annotations

import pytest

from statehold.sessions.cluster.lease import Observer

LEASE = 10.0
INTERVAL = 2.0


@pytest.fixture
def observer() -> Observer:
    return Observer(INTERVAL)


def look(observer: Observer, times: list[float], beat: int = 1) -> None:
    for now in times:
        observer.note({"other": beat}, now)


def test_a_node_is_silent_when_its_beat_is_the_same_for_a_lease(observer: Observer) -> None:
    look(observer, [0, 2, 4, 6, 8])
    assert not observer.is_silent("other", LEASE, 9.9)
    assert observer.is_silent("other", LEASE, 10)


def test_a_new_beat_begins_a_new_lease(observer: Observer) -> None:
    look(observer, [0, 2, 4, 6])
    look(observer, [8, 10], beat=2)
    assert not observer.is_silent("other", LEASE, 10)
    assert observer.is_silent("other", LEASE, 18)


def test_a_node_that_could_not_look_begins_anew(observer: Observer) -> None:
    """Without a database no node renews its lease, and the first one that is back must not take the others for dead."""
    look(observer, [0, 2])
    look(observer, [60])
    assert not observer.is_silent("other", LEASE, 60)
    look(observer, [62, 64, 66, 68])
    assert observer.is_silent("other", LEASE, 70)


def test_an_unknown_node_is_not_silent(observer: Observer) -> None:
    look(observer, [0])
    assert not observer.is_silent("new", LEASE, 100)
