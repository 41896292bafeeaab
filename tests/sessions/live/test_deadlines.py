"""Deadlines: each key once, the earliest counts, and one that moved costs nothing."""

from __future__ import annotations

from weakref import WeakSet

import anyio
import anyio.lowlevel

from statehold.sessions.clock import ManualClock, SystemClock
from statehold.sessions.live.deadlines import SPARE, Deadlines


class Diary:
    def __init__(self) -> None:
        self.clock = ManualClock(0.0)
        self.seen: list[tuple[str, float]] = []
        self.next: dict[str, float] = {}
        self.reaper = Deadlines(self.clock)

    def due(self, key: str) -> float | None:
        self.seen.append((key, self.clock.now()))
        return self.next.pop(key, None)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()


async def test_a_nearer_deadline_replaces_a_later_one_and_not_the_other_way_round():
    diary = Diary()
    diary.reaper.schedule("a", 10.0)
    diary.reaper.schedule("a", 50.0)
    diary.reaper.schedule("a", 5.0)
    diary.reaper.schedule("a", None)
    diary.clock.advance(60)
    diary.reaper.run_due(diary.due)
    assert diary.seen == [("a", 60.0)]


class Key(str):
    """A key to which a weak reference is possible."""


async def test_keys_that_are_forgotten_long_before_their_deadline_leave_memory():
    diary = Diary()
    diary.reaper.schedule("a", 1000.0)
    known = WeakSet[Key]()
    for number in range(1000):
        key = Key(number)
        known.add(key)
        diary.reaper.schedule(key, 2000.0 + number)
        diary.reaper.schedule(key, 1500.0 + number)
        diary.reaper.forget(key)
    assert len(known) <= SPARE
    diary.clock.advance(1000)
    diary.reaper.run_due(diary.due)
    assert diary.seen == [("a", 1000.0)]


async def test_it_wakes_for_a_deadline_that_is_nearer_than_the_one_it_waits_for():
    diary = Diary()
    diary.reaper.schedule("late", 1000.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(diary.reaper.run, diary.due)
        await diary.pass_time(0)
        diary.reaper.schedule("soon", 10.0)
        await diary.pass_time(10)
        assert diary.seen == [("soon", 10.0)]
        await diary.pass_time(990)
        assert diary.seen[-1] == ("late", 1000.0)
        tasks.cancel_scope.cancel()


async def test_ten_thousand_sessions_wait_as_one_and_none_is_looked_at_before_its_time():
    diary = Diary()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(diary.reaper.run, diary.due)
        for number in range(10_000):
            diary.reaper.schedule(str(number), 100.0 + number)
        for _ in range(99):
            await diary.pass_time(1)
        assert (diary.clock.waiting, diary.seen) == (1, [])
        await diary.pass_time(1)
        assert diary.seen == [("0", 100.0)]
        assert len(diary.reaper) == 9_999
        tasks.cancel_scope.cancel()


async def test_thousands_of_deadlines_of_one_key_are_one():
    diary = Diary()
    for _ in range(1000):
        diary.reaper.schedule("a", 10.0)
        diary.reaper.schedule("a", 20.0)
    assert len(diary.reaper) == 1
    diary.clock.advance(30)
    diary.reaper.run_due(diary.due)
    assert len(diary.seen) == 1


async def test_the_system_clock_never_waits_for_what_is_over():
    clock = SystemClock()
    before = clock.now()
    with anyio.fail_after(10):
        await clock.sleep_until(before - 10)
        await clock.sleep_until(before + 0.01)
    assert clock.now() > before
