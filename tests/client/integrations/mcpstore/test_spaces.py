"""Spaces, blocks and sessions apart from one another, and all sessions of a space together."""

from __future__ import annotations

import json
import re
from asyncio import gather
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import service
from support.waiting import until_blocking

from statehold.client.errors import InvalidArgument, NameTaken, ServiceUnavailable, UnknownTool
from statehold.client.integrations.mcpstore import Context, MCPStore


def inc(context: Any) -> str:
    return context.use_tool("inc").text


@pytest.mark.thorough
def test_an_agent_has_services_tools_and_sessions_of_its_own(
    store: MCPStore, counter: dict[str, Any], servers: Callable[[int], None]
) -> None:
    """One bound service is one server, which belongs to the agent."""
    one, two = store.for_agent("team_1"), store.for_agent("team_2")
    assert store.for_agent("team_1") is one
    assert (one.list_services(), one.list_tools()) == ([], [])
    with pytest.raises(UnknownTool):
        one.use_tool("inc")
    one.add_service(counter)
    two.add_service({**counter, "name": "mine"})
    with (
        one.with_session("task") as a,
        two.with_session("task") as b,
        store.for_store().with_session("task") as c,
    ):
        assert len({a.id, b.id, c.id}) == 3
        assert a.bind_service("counter").service_count == 1
        assert [inc(a), inc(b), inc(c), inc(a), inc(c), inc(a)] == [
            "1",
            "1",
            "1",
            "2",
            "2",
            "3",
        ]
        servers(3)
        assert (one.current_session, two.current_session) == (a, b)
        assert (a.agent_id, b.agent_id, c.agent_id) == ("team_1", "team_2", None)
        for context, of_others in ((one, (b, c)), (two, (a, c)), (store.for_store(), (a, b))):
            assert [context.find_session(each.id) for each in of_others] == [None, None]
        with pytest.raises(ServiceUnavailable, match="there is mine"):
            b.bind_service("counter")
        assert [tool for tool in b.list_tools() if tool == "mine_inc"] == ["mine_inc"]
        with pytest.raises(UnknownTool):
            b.use_tool("counter_inc")
        assert [each.id for each in two.list_sessions()] == [b.id]
    servers(0)
    for wrong in ("", "a/b"):
        with pytest.raises(InvalidArgument):
            store.for_agent(wrong)


def test_a_service_of_the_store_alone_is_to_be_added_to_the_agent(store: MCPStore) -> None:
    advice = re.escape("add it to the agent, with for_agent('bare')")
    session = store.for_agent("bare").with_session()
    with pytest.raises(ServiceUnavailable) as raised:
        session.bind_service("counter")
    assert re.search(advice, raised.value.recovery)
    for name in ("inc", "counter_inc"):
        with pytest.raises(UnknownTool) as unknown:
            session.use_tool(name)
        assert re.search(advice, unknown.value.recovery)
    with pytest.raises(UnknownTool) as unknown:
        session.use_tool("nothing_like_it")
    assert "add it" not in unknown.value.recovery
    session.close_session()


def test_a_session_without_a_block_opens_at_its_first_use_and_stays(store: MCPStore) -> None:
    context = store.for_store()
    session = context.with_session("unblocked")
    assert context.find_session("unblocked") is None
    assert [inc(session), inc(session)] == ["1", "2"]
    assert context.current_session is None
    with session as entered:
        assert (entered is session, context.current_session) == (True, session)
        assert inc(context) == "3"
    assert not session.is_active
    with context.with_session("unblocked") as again:
        assert (inc(again), again.id != session.id) == ("1", True)


async def test_a_session_without_a_block_works_in_async_code(store: MCPStore) -> None:
    session = store.for_store().with_session_async("unblocked too")
    results = await gather(*(session.use_tool_async("inc") for _ in range(3)))
    assert sorted(result.text for result in results) == ["1", "2", "3"]
    assert await session.is_active_async()
    await session.close_session_async()
    assert not await session.is_active_async()


@pytest.mark.thorough
def test_an_agent_of_any_name_can_have_any_service(store: MCPStore) -> None:
    context = store.for_agent("团队 一").add_service({"name": "ein Zähler", **service("asking")})
    with context.with_session("会话") as s:
        assert s.use_tool("ein Zähler_inc").text == "1"
        assert inc(s) == "2"
        assert s.list_services() == ["ein Zähler"]


def test_blocks_nest_and_end_whatever_happens(store: MCPStore) -> None:
    """The caller's own exception is raised."""
    context = store.for_store()
    with context.with_session("outer") as outer:
        assert inc(context) == "1"
        inner = context.with_session("inner")
        with pytest.raises(KeyError, match="mine"), inner as s:
            raise KeyError("mine" if context.current_session is s and inc(s) == "1" else "not mine")
        assert not s.is_active
        assert context.current_session is outer
        assert inc(context) == "2"
    block = context.with_session("once")
    with block:
        pass
    with pytest.raises(RuntimeError), block:
        pass
    assert context.list_sessions() == []


def test_a_block_whose_store_was_closed_ends_quietly() -> None:
    store = MCPStore.setup_store()
    with store.for_store().with_session() as s:
        store.close()
        store.close()
    assert not s.is_active


def test_calls_without_a_session_keep_nothing_unless_it_is_automatic(
    store: MCPStore, servers: Callable[[int], None]
) -> None:
    context: Context = store.for_store()
    assert [inc(context), inc(context)] == ["1", "1"]
    servers(0)
    assert context.session_auto("shared").is_session_auto()
    assert [inc(context) for _ in range(3)] == ["1", "2", "3"]
    (auto,) = context.list_sessions()
    history = auto.native.history(kind="call").entries
    assert [entry.tool for entry in history] == ["inc"] * 3
    with context.with_session():
        assert inc(context) == "1"
    assert context.session_auto().use_tool("inc").text == "4"
    assert inc(context.session_auto("another")) == "1"
    assert not auto.is_active
    servers(1)
    context.session_manual()
    assert not context.is_session_auto()
    servers(0)
    inc(context.session_auto("kept"))
    session = context.session_manual(close=False).find_session("kept")
    assert session is not None
    assert inc(session) == "2"
    session.close_session()


@pytest.mark.thorough
def test_all_sessions_of_a_space_are_counted_restarted_closed_and_removed(
    store: MCPStore, counter: dict[str, Any], servers: Callable[[int], None]
) -> None:
    """Looking at a session changes no deadline."""
    context = store.for_agent("crowd").add_service(counter)
    sessions = [context.create_session(f"{number}") for number in range(3)]
    other = store.for_store().create_session("outside")
    for session in sessions:
        inc(session)
    used = [session.session_info()["last_active"] for session in sessions]
    for _ in range(20):
        listed = context.list_sessions()
        assert {each.session_id for each in listed} == {"0", "1", "2"}
        assert context.get_session_statistics() == {
            "total_sessions": 3,
            "active_sessions": 3,
            "by_status": {"idle": 3},
        }
    assert [session.session_info()["last_active"] for session in sessions] == used
    assert context.restart_sessions() == 3
    assert [inc(session) for session in sessions] == ["1"] * 3
    assert context.close_all_sessions() == 3
    assert context.close_all_sessions() == 0
    servers(0)
    assert context.get_session_statistics()["by_status"] == {"closed": 3}
    assert context.cleanup_sessions() == 3
    assert context.get_session_statistics()["total_sessions"] == 0
    assert not any(session.is_active for session in sessions)
    assert other.is_active
    other.close_session()


@pytest.mark.thorough
def test_a_service_may_take_one_call_at_a_time(store: MCPStore, tmp_path: Path) -> None:
    """A call that arrives during another call of its session begins after that call's end."""
    context, log = store.for_agent("orderly"), tmp_path / "calls"
    context.add_service({"name": "one", **service("asking", "--log", str(log), concurrency=1)})

    with context.with_session() as s, ThreadPoolExecutor(1) as threads:
        s.use_tool("get")
        slow = threads.submit(s.use_tool, "slow", {"seconds": 0.3})
        until_blocking(lambda: "slow" in log.read_text())
        assert not slow.done()
        assert s.use_tool("inc").text == "1"
        assert slow.result(10).text == "done"
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert [call["tool"] for call in calls] == ["get", "slow", "inc"]
    assert calls[2]["time"] - calls[1]["time"] >= 0.29


def test_a_service_is_added_once(store: MCPStore, counter: dict[str, Any]) -> None:
    """Adding an equal service again does nothing; adding a different one is refused."""
    context = store.for_agent("adding").add_service(counter).add_service(counter)
    assert [each.service for each in context.list_services()] == ["counter"]
    with pytest.raises(NameTaken):
        context.add_service({**counter, "env": {"OTHER": "1"}})
    with pytest.raises(InvalidArgument):
        context.add_service({**counter, "name": "a/b"})
