"""The table of transitions, against the one in the documentation, every status times every event."""

from __future__ import annotations

import pytest

from statehold.sessions.errors import IllegalTransition
from statehold.sessions.lifecycle import LIVE, OPEN, TABLE, Event, Status

DOCUMENTED = """
T01 -                                  created           creating
T02 creating                           opened            idle
T03 creating                           open_failed       closed
T04 idle                               call_admitted     active
T05 active                             calls_settled     idle
T06 idle                               state_updated     idle
T06 active                             state_updated     active
T07 idle                               idle_timed_out    paused
T08 idle                               pause_requested   paused
T09 paused                             resumed           idle
T10 paused                             paused_timed_out  closing
T11 idle                               idle_expired      closing
T12 idle,active,paused,error           close_requested   closing
T13 creating,idle,active,paused,error  close_forced      closing
T14 idle,active,paused                 connection_lost   error
T15 error                              recovered         idle
T16 error                              recovery_failed   paused
T17 creating,idle,active,paused,error  lifetime_over     closing
T18 closing                            released          closed
T19 closed                             purged            -
T20 idle,active,error                  adopted           paused
"""


def documented() -> dict[tuple[str | None, str], tuple[str, str | None]]:
    rows: dict[tuple[str | None, str], tuple[str, str | None]] = {}
    for line in DOCUMENTED.split("\n")[1:-1]:
        code, sources, event, target = line.split()
        for source in sources.split(","):
            key = (None if source == "-" else source, event)
            rows[key] = (code, None if target == "-" else target)
    return rows


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("status", [None, *Status])
def test_every_event_in_every_status_does_what_is_documented(status: Status | None, event: Event):
    expected = documented().get((status, event))
    if expected is None:
        with pytest.raises(IllegalTransition) as caught:
            TABLE[status, event]
        assert (caught.value.status, caught.value.event) == (status, event)
    else:
        row = TABLE[status, event]
        assert (row.code, row.target) == expected


def test_every_documented_row_is_in_the_table():
    assert {(key[0], key[1]) for key in TABLE} == set(documented())
    assert {row.code for row in TABLE.values()} == {f"T{n:02d}" for n in range(1, 21)}


def test_every_open_status_can_end():
    for status in OPEN:
        assert TABLE[status, Event.CLOSE_FORCED].target is Status.CLOSING
    assert LIVE < OPEN


def test_a_closed_session_never_comes_back():
    assert [row.event for row in TABLE.values() if row.source is Status.CLOSED] == [Event.PURGED]
