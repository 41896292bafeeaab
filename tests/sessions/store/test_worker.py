"""The thread of a connection to the database."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from weakref import ref

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from statehold.sessions.store.thread import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Thing:
    pass


async def test_jobs_run_one_after_the_other_in_one_thread() -> None:
    worker = Worker("tested")
    assert not [thread for thread in threading.enumerate() if thread.name == "tested"]
    seen: list[int] = []
    with anyio.fail_after(10):
        threads = await asyncio.gather(
            *(worker.run(partial(_noted, seen, number)) for number in range(100))
        )
    assert seen == list(range(100))
    assert {thread.name for thread in threads} == {"tested"}
    worker.end()
    worker.end()
    await anyio.to_thread.run_sync(threads[0].join, 10)
    assert not threads[0].is_alive()


def _noted(seen: list[int], number: int) -> threading.Thread:
    seen.append(number)
    return threading.current_thread()


async def test_what_a_job_raises_is_raised_where_it_is_waited_for() -> None:
    worker = Worker("tested")
    with pytest.raises(ZeroDivisionError):
        await worker.run(partial(divmod, 1, 0))
    assert await worker.run(partial(divmod, 5, 2)) == (2, 1)
    worker.end()


async def test_a_job_that_is_cancelled_before_its_turn_is_left_out_and_one_that_runs_is_not() -> (
    None
):
    worker, begun, go, seen = Worker("tested"), threading.Event(), threading.Event(), list[str]()

    def wait() -> None:
        begun.set()
        go.wait(10)
        seen.append("first")

    first, second = worker.run(wait), worker.run(partial(seen.append, "second"))
    assert await anyio.to_thread.run_sync(begun.wait, 10)
    first.cancel()
    second.cancel()
    go.set()
    with anyio.fail_after(10):
        await worker.run(partial(seen.append, "third"))
    assert seen == ["first", "third"]
    worker.end()


async def test_what_was_done_is_not_kept_alive() -> None:
    worker, thing = Worker("tested"), Thing()
    kept = ref(thing)
    assert await worker.run(partial(isinstance, thing, Thing))
    del thing
    with anyio.fail_after(10):
        # The thread releases it only after it has delivered the result.
        while kept() is not None:
            await anyio.lowlevel.checkpoint()
    worker.end()


def test_a_loop_that_is_closed_is_told_nothing_and_the_thread_goes_on() -> None:
    worker, go = Worker("tested"), threading.Event()

    async def leave() -> None:
        worker.run(partial(go.wait, 10))

    async def ask() -> int:
        return await worker.run(partial(int, "5"))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    go.set()
    assert asyncio.run(ask()) == 5
    worker.end()
