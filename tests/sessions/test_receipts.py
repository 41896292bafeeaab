"""Calls of our own tools with an operation id, with failures in between and with other holders of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from counting import Nobody
from house import Build, House

from statehold.sessions.calls.claims import Claim
from statehold.sessions.calls.receipts import Receipts
from statehold.sessions.calls.request import Request
from statehold.sessions.errors import (
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionBusy,
    SessionError,
    SessionLimit,
    StateConflict,
    StoreUnavailable,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import CallResult
from statehold.sessions.transitions.create import SessionOptions

Work = Callable[[], Awaitable[CallResult]]


class Change:
    """Counts how often it is done; `go` lets it end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self.begun, self.go = anyio.Event(), anyio.Event()
        self.go.set()
        self.error = error

    async def __call__(self, *_: Claim) -> CallResult:
        self.times += 1
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return CallResult({"times": self.times})


def receipts_of(home: House) -> Receipts:
    return Receipts(home.registry)


def request(session: str, operation: str = "op", **arguments: Any) -> Request:
    return Request(LOCAL, session, "", "change", arguments, operation_id=operation)


async def test_a_repeat_at_the_same_time_waits_for_the_first(build: Build) -> None:
    async with build() as home:
        session, change, found = (await home.create()).id, Change(), list[Any]()
        change.go = anyio.Event()
        receipts = receipts_of(home)

        async def one() -> None:
            found.append((await receipts.run(request(session), change)).payload)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
            await change.begun.wait()
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(InvalidArgument):
                await receipts.run(request(session, n=1), change)
            # Nor can a call of a service have the id meanwhile.
            with pytest.raises(InvalidArgument):
                await home.router.call(
                    Request(LOCAL, session, "counter", "inc", {}, operation_id="op"), Nobody()
                )
            change.go.set()
        assert (found, change.times) == ([{"times": 1}] * 3, 1)
        assert home.counter.calls == []


async def test_it_ends_when_its_caller_is_gone(build: Build) -> None:
    async with build() as home:
        session, change = (await home.create()).id, Change()
        change.go = anyio.Event()
        receipts = receipts_of(home)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receipts.run, request(session), change)
            await change.begun.wait()
            tasks.cancel_scope.cancel()
            change.go.set()
        assert (await receipts.run(request(session), change)).payload == {"times": 1}


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (InvalidArgument("no"), 1),
        (StateConflict("no"), 1),
        (OutcomeUnknown("no"), 1),
        (SessionBusy("not now"), 2),
        (ServiceUnavailable("not now"), 2),
    ],
)
async def test_what_can_be_tried_again_leaves_the_id_unused(
    build: Build, error: SessionError, times: int
) -> None:
    async with build() as home:
        session, change = (await home.create()).id, Change(error)
        receipts = receipts_of(home)
        for _ in range(2):
            with pytest.raises(type(error)):
                await receipts.run(request(session), change)
        assert change.times == times
        assert (await home.store.receipts(session))[0] == (times == 1)


async def test_what_began_and_did_not_end_is_unknown(build: Build) -> None:
    async with build() as home:
        session, change = (await home.create()).id, Change()
        first = Change(StoreUnavailable("down"))
        with pytest.raises(StoreUnavailable):
            await receipts_of(home).run(request(session), first)
        other = Change(KeyError("a fault of ours"))
        with pytest.raises(KeyError):
            await receipts_of(home).run(request(session, "other"), other)
        for operation in ("op", "other"):
            with pytest.raises(OutcomeUnknown):
                await receipts_of(home).run(request(session, operation), change)
        assert change.times == 0


async def test_what_another_process_began_is_busy_as_long_as_that_lives(
    build: Build, tmp_path: Path
) -> None:
    async with build(folder=tmp_path) as home, build(folder=tmp_path) as next_door:
        session, change = (await home.create()).id, Change()
        change.go = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receipts_of(home).run, request(session), change)
            await change.begun.wait()
            with pytest.raises(SessionBusy):
                await receipts_of(next_door).run(request(session), change)
            change.go.set()
        again = await receipts_of(next_door).run(request(session), change)
        assert (again.payload, change.times) == ({"times": 1}, 1)


async def test_what_ended_while_nothing_could_be_written_is_written_behind(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("down")

    async with build() as home:
        session, change = (await home.create()).id, Change()
        with monkeypatch.context() as patched:
            patched.setattr(home.store, "settle_receipt", down)
            await receipts_of(home).run(request(session), change)
        again = await receipts_of(home).run(request(session), change)
        assert (again.payload, change.times) == ({"times": 1}, 1)


async def test_nothing_is_changed_before_the_start_is_durable(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any) -> None:
        raise StoreUnavailable("down")

    async with build() as home:
        session, change = (await home.create()).id, Change()
        with monkeypatch.context() as patched:
            patched.setattr(home.store, "claim_receipt", down)
            with pytest.raises(StoreUnavailable):
                await receipts_of(home).run(request(session), change)
        assert change.times == 0
        await receipts_of(home).run(request(session), change)


async def test_the_room_for_receipts_is_that_of_calls(build: Build) -> None:
    async with build(policy=Policy(receipts=2)) as home:
        session, change = (await home.create()).id, Change()
        receipts = receipts_of(home)
        await receipts.run(request(session, "a"), change)
        call = Request(LOCAL, session, "counter", "inc", {}, operation_id="b")
        await home.router.call(call, Nobody())
        with pytest.raises(SessionLimit):
            await receipts.run(request(session, "c"), change)
        assert (await receipts.run(request(session, "a"), change)).payload == {"times": 1}
        call.settled = ["a"]
        await home.router.call(call, Nobody())
        await receipts.run(request(session, "c"), change)
        call.operation_id = "d"
        with pytest.raises(SessionLimit):
            await home.router.call(call, Nobody())


async def test_a_session_that_was_not_made_whole_leaves_the_id_unused(build: Build) -> None:
    async with build() as home:
        receipts, made = receipts_of(home), list[str]()
        asked = Request(LOCAL, "", "", "make", {}, operation_id="op")

        async def make(claim: Claim) -> CallResult:
            session = await home.registry.create(LOCAL, SessionOptions(claim=claim))
            made.append(session.id)
            if len(made) == 1:
                raise ServiceUnavailable("An eager service did not open.")
            return CallResult({"id": session.id})

        with pytest.raises(ServiceUnavailable):
            await receipts.make(asked, make)
        for _ in range(2):
            assert (await receipts.make(asked, make)).payload == {"id": made[1]}
        assert len(made) == 2
