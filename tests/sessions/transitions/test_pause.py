"""Pausing when something stands in the way: a connection that cannot be saved, a store that cannot write, another pause."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from counting import Counter, Counting, refuse
from house import Build, House

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.lifecycle import Event
from statehold.sessions.live.connector import OPENED_IN_WINDOW, replacement_notice
from statehold.sessions.live.session import Session
from statehold.sessions.records import LOCAL, BindingRecord, BindingStatus
from statehold.sessions.services import Restored, Snapshot


def saving(**options: float) -> Counting:
    return Counting(pause="snapshot", **options)  # pyright: ignore[reportArgumentType]


async def burst() -> Snapshot | None:
    raise RuntimeError("a bug of the service")


async def told(house: House, session: Session) -> str:
    """Return the notice of the next result, after a check that later results have none."""
    answer = await house.call(session.id)
    assert (await house.call(session.id)).notice is None
    assert answer.notice is not None
    return answer.notice


async def saved_once(house: House) -> tuple[Session, Counter]:
    """Return a session with a snapshot of its count as it was at 1, and its connection."""
    session = await house.create()
    await house.count(session.id)
    await house.registry.pause(LOCAL, session.id)
    await house.registry.resume(LOCAL, session.id)
    session = await house.registry.find(LOCAL, session.id)
    assert await told(house, session)
    return session, house.counter.live[0]


async def test_a_pause_that_could_not_save_is_told_with_what_came_back(
    build: Build, tmp_path: Path
):
    async with build(saving(), folder=tmp_path) as house:
        session, counter = await saved_once(house)
        counter.snapshot = refuse
        await house.registry.pause(LOCAL, session.id)
        described = (await house.registry.info(LOCAL, session.id))["services"][0]
        assert described["status"] == "lost"
    # Another process may resume it.
    async with build(saving(), folder=tmp_path) as house:
        notice = await told(house, session)
        assert (
            "saving it failed when the session was paused, and what was saved before is older: "
            "The counter does not answer)." in notice
        )
        assert "Restored: the count" in notice


@pytest.mark.parametrize(("how", "why"), [(refuse, "does not answer"), (burst, "internal fault")])
async def test_a_pause_that_could_not_save_what_was_never_saved_says_so(
    build: Build, how: object, why: str
):
    async with build(saving()) as house:
        session = await house.create()
        await house.count(session.id)
        setattr(house.counter.live[0], "snapshot", how)  # noqa: B010 its type is not known
        await house.registry.pause(LOCAL, session.id)
        notice = await told(house, session)
        assert "and nothing was saved before: " in notice
        assert why in notice
        assert "Lost: the count" in notice


async def test_a_pause_after_one_that_could_not_save_is_one_as_any(build: Build):
    async with build(saving()) as house:
        session, counter = await saved_once(house)
        counter.snapshot = refuse
        await house.registry.pause(LOCAL, session.id)
        assert "failed" in await told(house, session)
        await house.registry.pause(LOCAL, session.id)
        assert "it was paused" in await told(house, session)


async def test_a_checkpoint_that_failed_before_is_no_failure_of_the_pause(build: Build):
    async with build(saving(checkpoint_seconds=5.0)) as house:
        session = await house.create()
        await house.call(session.id, "get")
        house.counter.live[0].checkpoint = refuse
        await house.count(session.id)
        await anyio.wait_all_tasks_blocked()
        assert session.bindings["counter"].save_error is not None
        await house.registry.pause(LOCAL, session.id)
        assert "it was paused" in await told(house, session)


async def test_a_session_that_could_be_neither_saved_nor_paused_goes_on_as_it_was(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async with build(saving()) as house:
        session = await house.create()
        await house.count(session.id)

        async def write(_: object) -> None:
            raise StoreUnavailable("The disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr(house.store, "write", write)
            patch.setattr(house.counter.live[0], "snapshot", refuse)
            with pytest.raises(StoreUnavailable):
                await house.registry.pause(LOCAL, session.id)
        assert session.bindings["counter"].record.status is BindingStatus.OPEN
        assert await house.count(session.id) == 2


@pytest.mark.parametrize("pause", ["snapshot", "keep"])
async def test_only_what_would_have_been_saved_is_missed_of_a_connection_that_just_ended(
    build: Build, pause: str
):
    async with build(Counting(pause=pause)) as house:  # pyright: ignore[reportArgumentType]
        session = await house.create()
        await house.count(session.id)
        house.counter.live[0].die("killed")
        # Its owner has not run since.
        binding = session.bindings["counter"]
        assert await house.registry.snapshots.take(session, binding) is None
        assert binding.save_error == ("killed" if pause == "snapshot" else None)


@pytest.mark.parametrize("pause", ["snapshot", "keep"])
async def test_pauses_at_once_all_succeed(build: Build, pause: str):
    with anyio.fail_after(5):
        async with build(Counting(pause=pause)) as house:  # pyright: ignore[reportArgumentType]
            session = await house.create()
            await house.count(session.id)
            found: list[str] = []

            async def once() -> None:
                found.append((await house.registry.pause(LOCAL, session.id)).status)

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(once)
            assert found == ["paused"] * 4
            assert await house.status(session.id) == "paused"


async def test_a_pause_is_not_said_to_have_happened_in_a_session_that_was_taken_over(build: Build):
    async with build(Counting(pause="keep")) as house:
        session = await house.create()
        await house.count(session.id)
        await house.registry.pause(LOCAL, session.id)
        session.fenced = True
        await house.registry.closing.drop(session)
        assert not await house.registry.pausing.pause(session, Event.PAUSE_REQUESTED, cause="")


def test_a_connection_that_the_operator_opened_in_a_window_is_told_as_such() -> None:
    before = BindingRecord(
        session_id="sh_a",
        service="browser",
        status=BindingStatus.PAUSED,
        generation=2,
        told_generation=1,
        last_error=OPENED_IN_WINDOW,
    )
    told = replacement_notice(before, 3, Restored(restored="1 tab"))
    assert "(generation 1 to 3; the operator opened it in a window)" in told
    earlier = before.model_copy(update={"last_error": "exit code 1"})
    assert "it was paused" in replacement_notice(earlier, 3, Restored(restored="1 tab"))
