"""The types of MCPStore's API."""

from __future__ import annotations

from typing import Any, assert_type

from langchain_core.tools import StructuredTool

from statehold.client import CallResult, ServiceStatus, Tool
from statehold.client.integrations.mcpstore import (
    Context,
    LangChain,
    MCPStore,
    Session,
    SessionBlock,
)


def stores() -> None:
    assert_type(MCPStore.setup_store(), MCPStore)
    MCPStore.setup_store("http://127.0.0.1:8931", token="x", headers={"a": "b"})
    with MCPStore.setup_store(services="mcp.json", data="kept") as store:
        assert_type(store.for_store(), Context)
        assert_type(store.for_agent("team_1"), Context)


def contexts(context: Context) -> None:
    assert_type(context.add_service({"name": "browser", "url": "http://a/sse"}), Context)
    context.add_service([{"name": "a", "command": "a"}]).add_service({"mcpServers": {}})
    assert_type(context.wait_service("browser", timeout=5), ServiceStatus)
    assert_type(context.list_tools(), list[Tool])
    assert_type(context.use_tool("inc", {"n": 1}, timeout=1), CallResult)
    assert_type(context.with_session("x", idle_seconds=5), SessionBlock)
    assert_type(context.create_session("x", metadata={"a": 1}), Session)
    assert_type(context.find_session("x"), Session | None)
    assert_type(context.list_sessions(), list[Session])
    assert_type(context.session_auto().session_manual(close=False), Context)
    assert_type(context.for_langchain(), LangChain)
    assert_type(context.for_langchain().list_tools(), list[StructuredTool])
    assert_type(context.close_all_sessions(), int)
    context.with_session("x", keep=True)  # pyright: ignore[reportCallIssue]


def sessions(context: Context) -> None:
    with context.with_session("x") as s:
        assert_type(s, Session)
        assert_type((s.session_id, s.is_active, s.service_count), tuple[str, bool, int])
        assert_type(s.bind_service("a").restart_session().extend_session(seconds=60), Session)
        assert_type(s.use_tool("inc", {"n": 1}), CallResult)
        assert_type(s.session_info(), dict[str, Any])
        assert_type(s.list_services() + s.list_tools(), list[str])
        assert_type(s.connection_status(), dict[str, dict[str, Any]])
        assert_type(s.clear_cache().close_session(), None)
        s.native.state.update({"a": 1})


async def tasks(context: Context) -> None:
    async with context.with_session_async("x") as s:
        assert_type(s, Session)
        assert_type(await s.bind_service_async("a"), Session)
        assert_type(await s.use_tool_async("inc", {"n": 1}), CallResult)
        assert_type(await s.is_active_async(), bool)
    async with await context.with_session_async("x") as s:
        assert_type(s, Session)
    assert_type(await context.create_session_async("x"), Session)
    assert_type(await context.for_langchain().list_tools_async(), list[StructuredTool])
