"""Forks and merges of sessions of a registry."""

from __future__ import annotations

import threading

import anyio
import pytest
from support.counting import Counting, refuse
from support.engine import Build, Engine

from statehold.sessions.actions import branches
from statehold.sessions.actions.branches import SAME_LOGINS
from statehold.sessions.errors import (
    InvalidArgument,
    NameTaken,
    SessionClosed,
    SessionLimit,
    SessionNotFound,
    StateConflict,
    StateInvalid,
)
from statehold.sessions.live.session import LiveSession
from statehold.sessions.live.snapshots import decode_snapshot
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.state.merge import merge_branches

OTHER = Principal(subject="somebody else")


def two() -> tuple[Counting, Counting]:
    return Counting("counter", pause="snapshot"), Counting("plain", pause="keep")


async def forked(engine: Engine, session: LiveSession, count: int = 1) -> list[str]:
    forks = await engine.registry.branches.fork(LOCAL, session.id, count=count)
    return [child.id for child in forks.children]


async def value(engine: Engine, session: str) -> object:
    return (await engine.registry.states.read(LOCAL, session)).value


async def test_children_get_the_earlier_snapshot_with_a_note_when_a_new_one_fails(
    build: Build,
) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        assert await engine.count(session.id) == 1
        first = await engine.registry.branches.fork(LOCAL, session.id)
        assert first.services[0].note == SAME_LOGINS
        assert await engine.count(session.id) == 2
        engine.counter.live[0].snapshot = refuse
        forks = await engine.registry.branches.fork(LOCAL, session.id)
        assert forks.services[0].copied
        assert forks.services[0].note is not None
        assert "done since: The counter does not answer." in forks.services[0].note
        assert await engine.count(forks.children[0].id) == 2
        assert await engine.count(session.id) == 3


async def test_children_have_the_labels_of_their_parent(build: Build) -> None:
    async with build() as engine:
        labels = {"user_id": "ada", "agent_id": "buyer", "team_id": "t", "workflow_id": "w"}
        session = await engine.create(labels=labels)
        (child,) = await forked(engine, session)
        info = await engine.registry.info(LOCAL, child)
        assert {name: info[name] for name in labels} == labels


async def test_children_start_from_the_state_and_the_connections_of_their_parent(
    build: Build,
) -> None:
    """Log in once and fork five sessions."""
    async with build(*two()) as engine:
        session = await engine.create(name="parent", state={"n": 1, "large": 2**80})
        for _ in range(3):
            await engine.count(session.id)
        await engine.count(session.id, service="plain")
        forks = await engine.registry.branches.fork(
            LOCAL, session.id, count=5, names=[f"child {number}" for number in range(5)]
        )
        assert [(s.service, s.copied) for s in forks.services] == [
            ("counter", True),
            ("plain", False),
        ]
        assert forks.services[1].note is not None
        assert "saves nothing" in forks.services[1].note
        assert [child.record.name for child in forks.children] == [f"child {n}" for n in range(5)]
        for number, child in enumerate(forks.children):
            assert await value(engine, child.id) == {"n": 1, "large": 2**80}
            answer = await engine.call(child.id)
            assert answer.payload["structuredContent"]["count"] == 4
            assert answer.notice is not None
            assert (
                "counter began as a copy of another session's. Restored: the count."
                in answer.notice
            )
            assert (await engine.call(child.id)).notice is None
            assert await engine.count(child.id, service="plain") == 1
            info = await engine.registry.info(LOCAL, child.id)
            assert (info["parent"], info["state_version"]) == (session.id, 0)
            await engine.registry.states.update(LOCAL, child.id, {"n": number})
        # The parent, and each child, is by itself from now on.
        assert await engine.count(session.id) == 4
        assert await value(engine, session.id) == {"n": 1, "large": 2**80}


async def test_each_service_is_saved_once_for_all_children(build: Build) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        saved = 0
        (connection,) = engine.counter.live
        snapshot = connection.snapshot

        async def counted() -> object:
            nonlocal saved
            saved += 1
            return await snapshot()

        connection.snapshot = counted  # pyright: ignore[reportAttributeAccessIssue]
        await forked(engine, session, 5)
        assert saved == 1


async def test_a_paused_session_is_forked_without_waking_it(build: Build) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        (child,) = await forked(engine, session)
        assert await engine.status(session.id) == "paused"
        assert await engine.count(child) == 2
        # A fork of the child continues from the child's count.
        (grandchild,) = await forked(engine, await engine.registry.find(LOCAL, child))
        assert await engine.count(grandchild) == 3


async def test_a_service_that_was_never_opened_has_nothing_to_copy(build: Build) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        forks = await engine.registry.branches.fork(LOCAL, session.id)
        assert forks.services[0].copied is False
        assert "not opened" in (forks.services[0].note or "")
        assert await engine.count(forks.children[0].id) == 1


async def test_all_children_are_made_or_none(build: Build) -> None:
    async with build(policy=Policy(sessions_per_principal=4)) as engine:
        session = await engine.create(name="taken")
        fork = engine.registry.branches.fork
        with pytest.raises(NameTaken):
            await fork(LOCAL, session.id, count=2, names=["free", "taken"])
        with pytest.raises(SessionLimit):
            await fork(LOCAL, session.id, count=4)
        for count, names in (
            (0, None),
            (101, None),
            (2, ["one"]),
            (2, ["z", "z"]),
            (2, ["a", "."]),
        ):
            with pytest.raises(InvalidArgument):
                await fork(LOCAL, session.id, count=count, names=names)
        with pytest.raises(SessionNotFound):
            await fork(OTHER, session.id)
        assert engine.registry.statistics()["owned"] == 1
        assert len(await forked(engine, session, 3)) == 3


async def test_changes_of_children_are_merged_in_the_order_of_the_sources(build: Build) -> None:
    """The order in which the children finish does not matter."""
    async with build() as engine:
        session = await engine.create(state={"counter": 0, "n": {"x": 1, "y": 1}, "gone": 1})
        children = await forked(engine, session, 3)

        async def work(number: int) -> None:
            values = {"counter": number, f"result {number}": number, "n": {"xyz"[number]: 9}}
            await engine.registry.states.update(LOCAL, children[number], values)

        async with anyio.create_task_group() as tasks:
            for number in (2, 0, 1):
                tasks.start_soon(work, number)
        await engine.registry.states.update(LOCAL, children[1], {"gone": None})
        await engine.registry.states.update(LOCAL, session.id, {"mine": 1})
        merged = await engine.registry.branches.merge(LOCAL, session.id, children)
        assert merged.state.value == {
            "counter": 2,
            "n": {"x": 9, "y": 9, "z": 9},
            "mine": 1,
            **{f"result {number}": number for number in range(3)},
        }
        assert merged.state.version == 2
        assert [(c.path, c.source, c.was_taken) for c in merged.conflicts] == [
            ("/counter", children[2], True)
        ]
        stored = await engine.store.state(session.id)
        assert stored is not None
        assert (stored.version, stored.value) == (2, merged.state.value)
        # The same again changes nothing, and writes nothing.
        again = await engine.registry.branches.merge(LOCAL, session.id, children[2:])
        assert again.state.version == 2


async def test_a_merge_that_fails_changes_nothing(build: Build) -> None:
    async with build() as engine:
        schema = {"properties": {"n": {"maximum": 5}}}
        session = await engine.create(state={"n": 0}, state_schema=schema)
        children = await forked(engine, session, 2)
        for number, child in enumerate(children, 1):
            await engine.registry.states.update(LOCAL, child, {"n": number, f"k{number}": 1})
        merge = engine.registry.branches.merge
        with pytest.raises(StateConflict, match="/n"):
            await merge(LOCAL, session.id, children, policy="fail")
        stranger = await engine.create()
        wrong: list[list[str]] = [[], [stranger.id], [children[0]] * 2, [session.id]]
        for sources in wrong:
            with pytest.raises(InvalidArgument, match="sources"):
                await merge(LOCAL, session.id, sources)
        with pytest.raises(SessionNotFound):
            await merge(OTHER, session.id, children)
        with pytest.raises(SessionNotFound):
            await merge(LOCAL, session.id, ["sh_" + "a" * 26])
        assert (await engine.registry.states.read(LOCAL, session.id)).version == 0
        with pytest.raises(StateInvalid):
            await engine.registry.states.update(LOCAL, children[0], {"n": 6})
        await engine.registry.close(LOCAL, children[1])
        with pytest.raises(SessionClosed):
            await merge(LOCAL, session.id, children)
        assert await value(engine, session.id) == {"n": 0}
        merged = await merge(LOCAL, session.id, children[:1], policy="fail")
        assert merged.state.value == {"n": 1, "k1": 1}


async def test_a_merge_knows_the_fork_point_after_everything_was_paused(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(state={"a": 1, "b": 1})
        (child,) = await forked(engine, session)
        await engine.registry.states.update(LOCAL, child, {"a": None})
        for one in (session.id, child):
            await engine.registry.pause(LOCAL, one)
        assert engine.registry.statistics()["owned"] == 0
        merged = await engine.registry.branches.merge(LOCAL, session.id, [child])
        assert merged.state.value == {"b": 1}
        # To read a source is no use of it.
        assert await engine.status(child) == "paused"


async def test_a_snapshot_for_a_fork_is_stored_for_the_parent_too(build: Build) -> None:
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await forked(engine, session)
        snapshot = await engine.store.snapshot(session.id, "counter")
        assert snapshot is not None
        assert decode_snapshot(snapshot.data).data == {"count": 1}
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        await engine.pass_time(lambda: session.status == "idle")
        assert await engine.count(session.id) == 2


async def test_a_merge_of_too_much_is_refused_and_changes_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "SOURCES_LIMIT", 3000)
    async with build() as engine:
        session = await engine.create()
        children = await forked(engine, session, 3)
        for number, child in enumerate(children):
            await engine.registry.states.update(LOCAL, child, {f"k{number}": "x" * 1200})
        merge = engine.registry.branches.merge
        with pytest.raises(StateInvalid) as caught:
            await merge(LOCAL, session.id, children)
        assert "fewer sources" in caught.value.recovery
        assert await value(engine, session.id) == {}
        await merge(LOCAL, session.id, children[:2])
        merged = await merge(LOCAL, session.id, children[2:])
        assert list(merged.state.value) == ["k0", "k1", "k2"]


async def test_a_merge_runs_off_the_event_loop(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def seen(*arguments: object) -> object:
        threads.append(threading.get_ident())
        return merge_branches(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(branches, "merge_branches", seen)
    async with build() as engine:
        session = await engine.create()
        children = await forked(engine, session)
        await engine.registry.branches.merge(LOCAL, session.id, children)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
