"""The rows of approvals: each is decided and used once, also by two processes at once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import anyio
from store_making import MakeStore

from statehold.access.audit.recorder import Actor, Audit
from statehold.sessions.calls.approval import decide
from statehold.sessions.clock import ManualClock
from statehold.sessions.store.base import ApprovalRecord, ApprovalState
from statehold.sessions.store.people.approvals import PAGE_ROWS
from statehold.sessions.store.sql import SQLStore

ADMIT = partial(Audit().admit, Actor.of_command())


def request(number: int, now: float) -> ApprovalRecord:
    return ApprovalRecord(
        id=f"apr_{number}",
        owner="o",
        session_id=f"s{number}",
        service="bank",
        tool="send",
        digest=f"d{number}",
        standing="all",
        arguments="{}",
        state=ApprovalState.PENDING.value,
        created_at=now,
        ends_at=now + 10,
    )


async def test_the_newest_requests_are_listed_first_and_standing_approvals_last(
    store: SQLStore,
) -> None:
    now, last = 1000.0, PAGE_ROWS + 1
    for number in range(last + 1):
        record = replace(request(number, now + number / 100), standing=str(number))
        await store.access.request_approval(record)
    assert await store.access.decide_approval(f"apr_{last}", ApprovalState.STANDING, now, 2000.0)
    listed = await store.access.open_approvals("o", now + 5)
    assert [each.id for each in listed] == [f"apr_{number}" for number in range(PAGE_ROWS, 0, -1)]
    assert {each.arguments for each in listed} == {""}
    for each in listed:
        assert await store.access.decide_approval(each.id, ApprovalState.REFUSED, now, 2000.0)
    listed = await store.access.open_approvals("o", now + 5)
    assert [each.id for each in listed] == ["apr_0", f"apr_{last}"]


async def test_two_nodes_use_an_approval_once(make_store: MakeStore) -> None:
    clock = ManualClock()
    ends: list[tuple[str, bool]] = []

    async def approve(store: SQLStore, wanted: ApprovalRecord) -> None:
        is_done = await decide(store, ADMIT, wanted, "approve", clock.now())
        ends.append(("decided", is_done))

    async def use(store: SQLStore, wanted: ApprovalRecord) -> None:
        keys = (wanted.id, wanted.digest, wanted.standing)
        ends.append(("used", await store.access.use_approval(*keys, clock.now())))

    async with make_store() as first, AsyncExitStack() as stack:
        # A store in memory has one process.
        is_shared = make_store != SQLStore.memory
        second = await stack.enter_async_context(make_store()) if is_shared else first
        for number in range(20):
            wanted = request(number, clock.now())
            assert await first.access.request_approval(wanted) == wanted
            repeated = replace(wanted, id="apr_other")
            assert await second.access.request_approval(repeated) == wanted
            ends.clear()
            for work in (approve, use):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(work, first, wanted)
                    tasks.start_soon(work, second, wanted)
            assert sorted(ends) == [
                ("decided", False),
                ("decided", True),
                ("used", False),
                ("used", True),
            ]
