"""The budget of live sessions: which session is paused for another, which one waits, and that no place is lost."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from statehold.sessions.errors import SessionLimit
from statehold.sessions.live.budget import Budget


class Rooms:
    """A budget whose victims give way when the test lets them."""

    def __init__(self, limit: int, *, queue: int = 10, seconds: float = 5.0, **more: Any) -> None:
        self.asked: list[str] = []
        self.unsaveable = set[str]()
        self.budget = Budget(
            limit,
            queue=queue,
            queue_seconds=seconds,
            **more,
        )
        self.budget.attach(self)

    def may_refill(self, holder: str) -> bool:
        return False

    def may_evict(self, holder: str, foreign: bool) -> bool:
        return not foreign or holder not in self.unsaveable

    def evict(self, holder: str, foreign: bool) -> None:
        self.asked.append(holder)

    async def hold(self, owner: str, count: int, *, idle: bool = False) -> list[str]:
        """Take places for an owner, named after it and numbered."""
        names = [f"{owner}{n}" for n in range(1, count + 1)]
        for name in names:
            await self.budget.acquire(name, owner)
            if idle:
                self.budget.mark_idle(name)
        return names

    async def waiting(self, count: int) -> None:
        with anyio.fail_after(5):
            while self.budget.statistics().waiting != count:
                await anyio.lowlevel.checkpoint()


async def test_a_holder_keeps_its_place_however_often_it_asks():
    rooms = Rooms(1)
    await rooms.budget.acquire("a")
    await rooms.budget.acquire("a")
    assert rooms.budget.statistics().used == 1
    rooms.budget.release("a")
    rooms.budget.release("a")
    assert rooms.budget.statistics().used == 0


async def test_the_longest_paused_one_that_keeps_its_connection_gives_way_before_every_idle_one():
    rooms = Rooms(3)
    for name in ("a", "b", "c"):
        await rooms.budget.acquire(name)
    rooms.budget.mark_idle("a")
    rooms.budget.mark_first("b")
    rooms.budget.mark_first("c")
    async with anyio.create_task_group() as tasks:
        for count, asked in enumerate(("b", "c", "a"), 1):
            tasks.start_soon(rooms.budget.acquire, f"newcomer {count}")
            await rooms.waiting(count)
            assert rooms.asked[-1] == asked
        for name in ("a", "b", "c"):
            rooms.budget.release(name)


async def test_another_is_asked_when_one_stays_after_all():
    rooms = Rooms(2)
    for name in ("a", "b"):
        await rooms.budget.acquire(name)
        rooms.budget.mark_idle(name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rooms.budget.acquire, "c")
        await rooms.waiting(1)
        rooms.budget.mark_busy("a")
        rooms.budget.keep_holder("a", idle=False)
        assert rooms.asked == ["a", "b"]
        rooms.budget.release("b")


async def test_a_connection_that_becomes_idle_is_asked_to_give_way_to_a_waiter():
    rooms = Rooms(1)
    await rooms.budget.acquire("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rooms.budget.acquire, "b")
        await rooms.waiting(1)
        assert rooms.asked == []
        rooms.budget.mark_idle("a")
        assert rooms.asked == ["a"]
        rooms.budget.release("a")
    assert rooms.budget.statistics().used == 1


async def test_places_go_to_waiters_in_the_order_they_came():
    rooms = Rooms(1)
    await rooms.budget.acquire("a")
    served: list[str] = []

    async def wait(name: str) -> None:
        await rooms.budget.acquire(name)
        served.append(name)
        rooms.budget.release(name)

    async with anyio.create_task_group() as tasks:
        for count, name in enumerate(("b", "c", "d"), 1):
            tasks.start_soon(wait, name)
            await rooms.waiting(count)
        rooms.budget.release("a")
    assert served == ["b", "c", "d"]


async def test_the_queue_is_bounded_and_says_when_to_come_back():
    rooms = Rooms(1, queue=1)
    await rooms.budget.acquire("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rooms.budget.acquire, "b")
        await rooms.waiting(1)
        with pytest.raises(SessionLimit) as caught:
            await rooms.budget.acquire("c")
        assert caught.value.retry_after is not None
        assert "retry_after_seconds" in caught.value.details()
        rooms.budget.release("a")


async def test_a_place_granted_to_a_cancelled_waiter_goes_to_the_next():
    rooms = Rooms(1)
    await rooms.budget.acquire("a")
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def leave() -> None:
            with scope:
                await rooms.budget.acquire("b")
                rooms.budget.release("b")

        tasks.start_soon(leave)
        await rooms.waiting(1)
        rooms.budget.release("a")
        scope.cancel()
    with anyio.fail_after(10):
        await rooms.budget.acquire("c")


async def test_the_requesters_own_sessions_give_way_before_those_of_another():
    rooms = Rooms(4)
    await rooms.hold("bob", 1, idle=True)
    await rooms.hold("alice", 3, idle=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rooms.budget.acquire, "alice4", "alice")
        await rooms.waiting(1)
        assert rooms.asked == ["alice1"]
        rooms.budget.release("alice1")
    assert rooms.budget.statistics().used == 4


async def test_one_owner_leaves_places_and_room_in_the_queue_to_others():
    """Seen with 20 long calls and 50 waiting ones of one caller: another waited 30 seconds, or was refused."""
    rooms = Rooms(20, queue=10, shared=True)
    await rooms.hold("alice", 15)
    async with anyio.create_task_group() as tasks:
        for n in range(16, 23):
            tasks.start_soon(rooms.budget.acquire, f"alice{n}", "alice")
        await rooms.waiting(7)
        with pytest.raises(SessionLimit, match=r"15 of 20 places .* the queue for one is full"):
            await rooms.budget.acquire("alice23", "alice")
        with anyio.fail_after(1):
            await rooms.hold("bob", 3)
            await rooms.hold("carol", 1)
            await rooms.hold("dave", 1)
        tasks.start_soon(rooms.budget.acquire, "eve1", "eve")
        await rooms.waiting(8)
        rooms.budget.release("alice1")
        await rooms.waiting(7)
        rooms.budget.release("alice2")  # the place goes back to alice
        await rooms.waiting(6)
        tasks.cancel_scope.cancel()


async def test_a_fixed_maximum_for_one_owner_is_kept():
    rooms = Rooms(4, most=2, seconds=0.01)
    await rooms.hold("alice", 2, idle=True)
    with pytest.raises(SessionLimit, match="2 of 4"):
        await rooms.budget.acquire("alice3", "alice")
    assert rooms.asked == ["alice1"]
    await rooms.hold("bob", 2)


async def test_places_go_in_turn_to_the_owners_that_wait():
    rooms = Rooms(2)
    await rooms.hold("old", 2)
    served: list[str] = []

    async def wait(name: str, owner: str) -> None:
        await rooms.budget.acquire(name, owner)
        served.append(name)
        rooms.budget.release(name)

    async with anyio.create_task_group() as tasks:
        for count, name in enumerate(("a1", "a2", "a3", "b1", "c1"), 1):
            tasks.start_soon(wait, name, name[0])
            await rooms.waiting(count)
        rooms.budget.release("old1")
    assert served == ["a1", "b1", "c1", "a2", "a3"]
    assert rooms.budget.statistics().used == 1


async def test_places_are_kept_for_owners_without_one():
    """Seen without: five owners held all places, and a sixth was refused."""
    rooms = Rooms(100, shared=True, seconds=0.01)
    for owner in ("ann", "bob", "carol", "dave", "eve"):
        with pytest.raises(SessionLimit):
            await rooms.hold(owner, 100)
    kept = 100 - rooms.budget.statistics().used
    assert kept >= 5
    for number in range(kept):
        await rooms.hold(f"newcomer{number}", 1)
    assert rooms.budget.statistics().used == 100
