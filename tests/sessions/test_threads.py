"""The threads that check states against schemas: no principal has all of them."""

from __future__ import annotations

import threading
from functools import partial

import anyio

from statehold.sessions.state.schema import in_thread


async def test_the_checks_of_one_principal_do_not_hold_up_those_of_another():
    """Seen with 30 slow checks of one: a small update of another took 7 seconds."""
    begun, go_on = anyio.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        anyio.from_thread.run_sync(begun.set)
        go_on.wait(10)

    async def of(owner: str, number: int) -> None:
        await in_thread(owner, slow)
        order.append(f"{owner}{number}")

    async with anyio.create_task_group() as tasks:
        try:
            for number in range(30):
                tasks.start_soon(of, "alice", number)
            with anyio.fail_after(5):
                await begun.wait()
                assert await in_thread("bob", partial(int, "6")) == 6
            assert order == []
        finally:
            go_on.set()
    assert order == [f"alice{n}" for n in range(30)]
