"""Properties and methods of a session handle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.gateway_process import service
from support.waiting import until, until_blocking

from statehold.client.errors import (
    CallTimedOut,
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionClosed,
    SessionExpired,
    UnknownTool,
)
from statehold.client.integrations.mcpstore import MCPStore, Session


def counts(session: Any, times: int) -> list[str]:
    return [session.use_tool("inc").text for _ in range(times)]


def test_a_session_describes_itself(store: MCPStore) -> None:
    context = store.for_store()
    with context.with_session("said", metadata={"a": 1}) as s:
        assert (s.session_id, s.agent_id, s.is_active) == ("said", None, True)
        assert s.id.startswith("sh_")
        # Bound to nothing it may call everything; binding chooses.
        assert (s.service_count, s.list_services()) == (0, [])
        assert s.tool_count == len(s.list_tools()) == len(context.list_tools())
        with pytest.raises(ServiceUnavailable, match="there is counter"):
            s.bind_service("nosuch")
        assert s.list_services() == []
        assert s.bind_service("counter").bind_service("counter").list_services() == ["counter"]
        assert s.connection_status()["counter"]["connected"] is False
        assert counts(s, 2) == ["1", "2"]
        info = s.session_info()
        assert (info["session_id"], info["id"], info["is_active"]) == ("said", s.id, True)
        assert (info["service_count"], info["services"]) == (1, ["counter"])
        assert info["tool_count"] == len(info["tools"]) == s.tool_count > 8
        assert {"status", "reason", "expires_at", "generation", "in_flight"} <= set(info)
        assert (info["state_version"], info["metadata"]) == (0, {"a": 1})
        # It has a name, so nothing ends it.
        assert info["expires_at"] is None
        for moment in ("created_at", "last_active"):
            assert datetime.fromisoformat(info[moment]).utcoffset() is not None
        assert s.connection_status()["counter"]["connected"] is True
        assert s.unbind_service("counter").service_count == 0
        assert s.connection_status() == {}
        other = context.find_session(s.id)
        assert other is not None
    assert not s.is_active
    assert not other.is_active
    assert other.session_info()["reason"] == "requested"


def test_a_name_leads_to_the_open_session_and_no_id_is_used_twice(store: MCPStore) -> None:
    """A name can be used again for a new session, and an invalid name is refused."""
    context = store.for_store()
    first = context.create_session("again")
    assert counts(first, 1) == ["1"]
    second = context.get_session("again")
    assert (second.id, second.attached, first.attached) == (first.id, True, False)
    with context.with_session("again") as third:
        assert counts(third, 1) == ["2"]
    session = context.find_session("again")
    assert session is not None
    assert counts(session, 1) == ["3"]
    first.close_session()
    first.close_session()
    assert context.find_session("again") is None
    with pytest.raises(SessionClosed):
        counts(second, 1)
    with context.with_session("again") as fourth:
        assert fourth.id != first.id
        assert counts(fourth, 1) == ["1"]
    for wrong in ("", "../x", "x" * 3000, "sh_me", "a\nb"):
        with pytest.raises(InvalidArgument):
            context.create_session(wrong)


def test_tools_are_called_by_either_name_once_and_unchanged(store: MCPStore, tmp_path: Any) -> None:
    agent = store.for_agent("caller")
    log = tmp_path / "calls"
    agent.add_service({"name": "counter", **service("asking", "--log", str(log))})
    with agent.with_session("calls") as s:
        arguments: dict[str, Any] = {"a": 1.50, "b": [2**60, None]}
        for name in ("echo", "counter_echo") * 5:
            result = s.use_tool(name, arguments)
            assert result.structured_content is not None
            assert result.structured_content["arguments"] == arguments
        assert len(log.read_text().splitlines()) == 10
        with pytest.raises(UnknownTool) as unknown:
            s.use_tool("ecco")
        assert 1 <= len(unknown.value.near) <= 5
        assert "counter_echo" in unknown.value.near
        failed = s.use_tool("fail")
        assert failed.is_error
        assert failed.text
        with pytest.raises(CallTimedOut):
            s.use_tool("hang", timeout=0.1)
        agent.add_service({"name": "twin", **service("quick")})
        # If two tools have the same name, the session's own is called.
        assert s.use_tool("echo").structured_content
        assert s.list_services() == ["counter"]
    assert agent.use_tool("get", service="twin").text == "0"
    with pytest.raises(InvalidArgument, match="Several services"):
        agent.use_tool("get")


def test_a_restart_is_of_one_session_and_is_reported(
    store: MCPStore, servers: Callable[[int], None]
) -> None:
    context = store.for_store()
    with context.with_session() as left, context.with_session() as right:
        assert counts(left, 2) == counts(right, 2) == ["1", "2"]
        servers(2)
        assert left.restart_session().generation == 2
        assert counts(left, 1) == ["1"]
        assert counts(right, 1) == ["3"]
        assert counts(right.clear_cache(), 1) == ["4"]
    servers(0)


def test_a_dead_server_shows_at_once_and_its_loss_is_reported(
    store: MCPStore, caplog: pytest.LogCaptureFixture
) -> None:
    with store.for_store().with_session("killed") as s:
        result = s.use_tool("inc").structured_content
        assert result is not None
        os.kill(result["pid"], signal.SIGKILL)
        until_blocking(lambda: not s.connection_status()["counter"]["connected"])
        assert "SIGKILL" in s.connection_status()["counter"]["last_error"]
        again = s.use_tool("inc")
        assert again.text == "1"
        assert again.notice is not None
        assert "Lost: everything" in caplog.text
        with pytest.raises(OutcomeUnknown):
            s.use_tool("crash")
        assert s.use_tool("inc").notice is not None
        assert s.use_tool("inc").notice is None
        assert s.is_active


def test_an_extension_moves_the_end_by_exactly_its_seconds(store: MCPStore) -> None:

    def ends(s: Session) -> datetime:
        return datetime.fromisoformat(s.session_info()["expires_at"])

    with store.for_store().with_session(lifetime_seconds=100) as s:
        first = ends(s)
        assert ends(s.extend_session(seconds=50)) - first == timedelta(seconds=50)
        assert ends(s.extend_session()) - first == timedelta(seconds=3650)


async def test_a_session_that_expired_is_over_for_every_handle(
    store: MCPStore, servers: Callable[[int], None]
) -> None:
    """Nothing is left of the session's connections either."""
    context = store.for_store()
    s = await context.create_session_async("brief", lifetime_seconds=100)
    other = await context.find_session_async("brief")
    assert other is not None
    assert (await s.use_tool_async("inc")).text == "1"
    await s.extend_session_async(seconds=-99.9)

    async def is_over() -> bool:
        return not await other.is_active_async()

    await until(is_over)
    assert not await s.is_active_async()
    assert (await s.session_info_async())["reason"] == "lifetime"
    for handle in (s, other):
        with pytest.raises((SessionClosed, SessionExpired)):
            await handle.use_tool_async("inc")


@pytest.mark.thorough
async def test_every_method_has_an_async_twin(store: MCPStore) -> None:
    context = store.for_agent("twins")
    await context.add_service_async({"name": "counter", **service("asking")})
    assert (await context.wait_service_async("counter")).status == "available"
    async with context.with_session_async("twin") as s:
        assert context.current_session is s
        assert await s.is_active_async()
        assert await s.service_count_async() == 0
        await s.bind_service_async("counter")
        await s.bind_service_async("counter")
        assert await s.list_services_async() == ["counter"]
        assert [(await s.use_tool_async("inc")).text for _ in range(2)] == ["1", "2"]
        assert (await context.use_tool_async("inc")).text == "3"
        assert await s.tool_count_async() == len(await s.list_tools_async())
        assert (await s.session_info_async())["session_id"] == "twin"
        assert (await s.connection_status_async())["counter"]["connected"]
        assert await (await s.restart_session_async()).is_active_async()
        await s.extend_session_async(seconds=60)
        await s.clear_cache_async()
        await s.unbind_service_async("counter")
        assert [each.id for each in await context.list_sessions_async()] == [s.id]
        await s.close_session_async()
    assert context.current_session is None
    await context.session_auto_async()
    assert [(await context.use_tool_async("inc")).text for _ in range(2)] == ["1", "2"]
    await context.session_manual_async()
    for kind in (Session, type(context)):
        names = {name for name, member in vars(kind).items() if callable(member) and name[0] != "_"}
        plain = {name for name in names if not name.endswith("_async")}
        alone = {"for_langchain", "for_langgraph", "is_session_auto"}
        assert {f"{name}_async" for name in plain - alone} <= names
