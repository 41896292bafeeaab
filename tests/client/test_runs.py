"""Runs: all that a client does in a session inside of a block has the id of the run in the history."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from statehold.client import Client, HistoryEntry, Session, runs
from statehold.client.errors import ConnectionLost, InvalidArgument
from statehold.client.sync import connect as connect_blocking


async def entries(session: Session, **filters: Any) -> list[HistoryEntry]:
    return (await session.history(1000, **filters)).entries


async def run_of(session: Session, run_id: str) -> HistoryEntry:
    [entry] = await entries(session, kind="run", run=run_id)
    return entry


async def test_a_run_marks_each_call_message_and_change_of_the_state(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        await s.call("inc")
        async with s.run("trip") as run:
            assert (run.id, run.status, (await run_of(s, "trip")).status) == (
                "trip",
                "running",
                "running",
            )
            await s.note("user", "book it")
            await s.call("inc")
            await client.call("inc")
            await s.state.update({"password": "hunter2", "step": 2})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(s.call, "inc")
        await s.note("user", "later")
        marked = await entries(s, run="trip")
        assert [(e.kind, e.tool) for e in marked] == [
            ("run", None),
            ("message", None),
            ("call", "inc"),
            ("call", "inc"),
            ("state", "state_update"),
            ("call", "inc"),
        ]
        [change] = await entries(s, kind="state")
        assert change.arguments["values"] == {"password": "[redacted]", "step": 2}
        ended = await run_of(s, "trip")
        assert (run.status, ended.status, ended.error) == ("completed", "completed", None)
        assert (run.started_at, run.ended_at) == (ended.at, ended.ended_at)
        assert [e.kind for e in await entries(s, kind=["call", "message"]) if e.run_id is None] == [
            "call",
            "message",
        ]


async def test_the_end_of_a_run_says_how_it_ended(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s:
        with pytest.raises(ValueError, match="no tea"):
            async with s.run("fails"):
                raise ValueError("no tea: password=hunter2")
        failed = await run_of(s, "fails")
        assert (failed.status, failed.error) == ("error", "ValueError: no tea: password=[redacted]")
        started = anyio.Event()

        async def wait() -> None:
            async with s.run("stopped"):
                started.set()
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await started.wait()
            tasks.cancel_scope.cancel()
        assert (await run_of(s, "stopped")).status == "cancelled"
        async with s.run() as first, s.run() as second:
            assert first.id != second.id
        async with s.run("closes"):
            await s.close()


async def test_a_run_is_of_one_session_and_ends_with_its_block(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s, embedded.session() as other:
        late = anyio.Event()

        async def call_late() -> None:
            await late.wait()
            await s.call("inc", {"mark": "late"})

        async with anyio.create_task_group() as tasks, s.run("outer"):
            async with s.run("inner"):
                await s.call("inc", mark="inner")
                await s.call("inc", run_id="named", mark="named")
                tasks.start_soon(call_late)
                await anyio.lowlevel.checkpoint()
            await (await embedded.get(s.id)).call("inc", mark="outer")
            await other.note("user", "elsewhere")
            late.set()
        calls = {e.arguments["mark"]: e.run_id for e in await entries(s, kind="call")}
        assert calls == {"inner": "inner", "named": "named", "outer": "outer", "late": None}
        assert (await entries(other, kind="message"))[0].run_id is None


async def test_run_id_is_of_the_session_and_only_a_mapping_gives_it_to_a_tool(
    embedded: Client,
) -> None:
    async with embedded.session(services=["quick"]) as s:
        await s.call("inc", run_id="r1")
        await s.call("inc", {"run_id": "of the tool"})
        await embedded.call("inc", {"run_id": "of the tool"}, run_id="r2")
        calls = await entries(s, kind="call")
        assert [(e.run_id, e.arguments) for e in calls] == [
            ("r1", {}),
            (None, {"run_id": "of the tool"}),
            ("r2", {"run_id": "of the tool"}),
        ]


async def test_runs_with_some_statuses_are_left_out(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s:
        for number, fails in enumerate((False, True, False, True)):
            try:
                async with s.run(f"r{number}"):
                    await s.note("user", str(number))
                    if fails:
                        raise RuntimeError
            except RuntimeError:
                pass
        await s.note("user", "outside")

        async def said(**filters: Any) -> list[str | None]:
            return [e.content for e in await entries(s, kind="message", **filters)]

        assert await said(skip_run_status="error") == ["0", "2", "outside"]
        assert await said(skip_run_status="error", last_runs=1) == ["2"]
        async with s.run("r3"):
            pass
        assert await said(skip_run_status="error", last_runs=1) == ["3"]
        with pytest.raises(InvalidArgument):
            async with s.run("x" * 129):
                raise AssertionError("it was begun")


async def test_tools_of_langchain_have_its_run_id_outside_of_a_block(
    embedded: Client, config_file: Path
) -> None:
    pytest.importorskip("langchain_core")
    own = uuid.uuid4()
    async with embedded.session(services=["quick"]) as s:
        [inc] = await s.langchain_tools(names=["inc"])
        await inc.ainvoke({}, config={"run_id": own})
        async with s.run("block"):
            await inc.ainvoke({}, config={"run_id": uuid.uuid4()})
        await s.call("inc")
        assert [e.run_id for e in await entries(s, kind="call")] == [str(own), "block", None]

    def block() -> None:
        with connect_blocking(config=config_file) as client, client.session("lc") as s:
            [inc] = s.langchain_tools(names=["inc"])
            inc.invoke({}, config={"run_id": own})
            with s.run("block"):
                inc.invoke({})
            assert [e.run_id for e in s.history(kind="call").entries] == [str(own), "block"]

    await anyio.to_thread.run_sync(block)


async def test_an_end_that_is_not_stored_in_time_is_an_error_of_the_client(
    embedded: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded.session() as s:
        with pytest.raises(ConnectionLost, match="did not answer within 0 seconds"):
            async with s.run("slow"):
                monkeypatch.setattr(runs, "END_SECONDS", 0.0)


async def test_a_block_that_failed_waits_less_for_the_end_of_its_run(
    embedded: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "END_SECONDS_AFTER_AN_ERROR", 0.0)
    async with embedded.session() as s:
        with pytest.raises(ValueError, match="the page is gone"):
            async with s.run("failed"):
                raise ValueError("the page is gone")
        assert (await run_of(s, "failed")).status == "running"
