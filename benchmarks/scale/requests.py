"""The requests that a server makes to its store, on a small and on a large one in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.ids import new_id
from statehold.sessions.lifecycle import Status
from statehold.sessions.node import Node
from statehold.sessions.records import LOCAL, SessionFilter, SessionOrder, StateRecord
from statehold.sessions.store import Write, session_queries
from statehold.sessions.store.sql import SQLStore

from ..plan import Plan
from ..samples import undisturbed
from ..store import session_of
from .filling import DAY, OTHER, Database, session_id

SHOWN: Final = sorted({*Status} - {Status.ACTIVE, Status.CLOSED})
"""The statuses of the tool session_list by default."""
LONGEST: Final = 3.0
"""Seconds of a request after which its later rounds are left out."""


@dataclass(slots=True)
class Opened:
    """An open store with a node on it."""

    store: SQLStore
    node: Node
    count: int = 0
    cursor: str = ""
    """The cursor of the page in the middle of the list."""
    claims: int = 0
    waits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


Request = Callable[[Opened], Awaitable[object]]


async def join(
    stack: AsyncExitStack, store: SQLStore, folder: Path, lease_seconds: float = 0.0
) -> Opened:
    await stack.enter_async_context(store)
    node = Node(store, folder, address="scale", clock=time.time, lease_seconds=lease_seconds)
    return Opened(store, await stack.enter_async_context(node))


def _list(**wanted: object) -> Request:
    values: dict[str, object] = {"owner": LOCAL.key, "statuses": SHOWN, "limit": 50, **wanted}
    session_filter = SessionFilter.model_validate(values)
    return lambda opened: opened.store.list_sessions(session_filter)


async def _list_middle(opened: Opened) -> None:
    await _list(cursor=opened.cursor)(opened)


async def _find(opened: Opened) -> None:
    assert await opened.store.find(LOCAL.key, "", "s400-task") is not None


async def _find_unknown(opened: Opened) -> None:
    assert await opened.store.find(LOCAL.key, "", "unknown") is None
    assert await opened.store.find_closed(LOCAL.key, "", "unknown") is None


async def _claim(opened: Opened) -> None:
    number = 100 + 2 * (opened.claims % 40) * (opened.count // 100)
    opened.claims += 1
    claimed = await opened.store.claim(session_id(number), opened.node.id, time.time())
    assert claimed is not None
    epoch = claimed.session.epoch
    await opened.store.write(Write(claimed.session.id, opened.node.id, epoch, {"node": None}))


async def _create(opened: Opened) -> None:
    record = session_of(0).model_copy(update={"id": new_id(), "node": None, "used_at": 0.0})
    await opened.store.create(record, StateRecord(session_id=record.id), [], per_owner=1 << 30)


async def sweep(opened: Opened) -> None:
    """Read and write what a sweep does before it closes the first session; in a store of `filled` a hundred are due."""
    store, now = opened.store, time.time()
    await opened.node.recover()
    if opened.node.is_sweeper():
        await store.due(now + DAY + 100)
        await store.access.delete_expired(now)
        await store.delete_expired_receipts(now)
        await store.delete_expired_subscriptions(now)
        await store.next_due()


REQUESTS: Final[dict[str, Request]] = {
    "list": _list(),
    "list, in the middle": _list_middle,
    "list, paused": _list(statuses=[Status.PAUSED]),
    "list, a rare status": _list(statuses=[Status.ERROR]),
    "list, another owner": _list(owner=f"{OTHER}1"),
    "list, all owners": _list(owner=None),
    "list, by name": _list(order=SessionOrder.NAME),
    "list, a name": _list(name_prefix="s400-"),
    "list, a label": _list(labels={"user_id": "u4"}),
    "search, in 1 of 10": _list(query="alpha"),
    "search, in none": _list(query="nowhere to be found"),
    "find a name": _find,
    "find an unknown name": _find_unknown,
    "claim and release": _claim,
    "create": _create,
    "sweep": sweep,
    "counts by status": lambda opened: opened.store.counts(),
    "stored bytes of an owner": lambda opened: opened.store.usage(LOCAL.key),
}
GROWING: Final = (
    "list, all owners",
    "list, by name",
    "counts by status",
    "stored bytes of an owner",
)
"""The requests of operators and of the console, and what is measured in the background: they read all sessions."""


async def measure(plan: Plan, databases: Sequence[Database]) -> dict[str, dict[int, list[float]]]:
    """Return the seconds of each request by the number of sessions."""
    random_order = random.Random(1)
    half = SessionFilter(
        owner=LOCAL.key, updated_since=time.time() - 3.5 * DAY, reverse=True, limit=1
    )
    async with AsyncExitStack() as stack:
        opened: list[Opened] = []
        for database in databases:
            each = await join(stack, database.open(), database.folder / "data")
            [record], _ = await each.store.list_sessions(half)
            each.count = database.count
            each.cursor = session_queries.cursor_after(record, SessionOrder.USED)
            opened.append(each)
        with undisturbed():
            for what, request in REQUESTS.items():
                ends = time.monotonic() + LONGEST
                for number in range(plan.many_rounds):
                    if number < 2 or time.monotonic() < ends:
                        for each in random_order.sample(opened, len(opened)):
                            await _time(each, what, request)
    # The first one fills caches.
    names = opened[0].waits
    return {what: {each.count: each.waits[what][1:] for each in opened} for what in names}


async def _time(opened: Opened, what: str, request: Request) -> None:
    began = time.perf_counter()
    try:
        await request(opened)
    except InvalidArgument:
        return  # a sealed store does not sort by names
    opened.waits.setdefault(what, []).append(time.perf_counter() - began)
