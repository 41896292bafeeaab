"""The tools of a space in LangChain and LangGraph."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from support.gateway_process import service

from statehold.client.errors import SessionClosed
from statehold.client.integrations.mcpstore import Context, MCPStore


def called(tool: Any, **arguments: Any) -> ToolMessage:
    result = tool.invoke({"type": "tool_call", "id": "1", "name": tool.name, "args": arguments})
    assert isinstance(result, ToolMessage)
    return result


def tool_of(context: Context, name: str) -> Any:
    (match,) = [tool for tool in context.for_langchain().list_tools() if tool.name == name]
    return match


def test_tools_that_were_listed_in_a_block_stay_with_its_session(store: MCPStore) -> None:
    """No model sees a session_id, and after the end the tools find the closed session, not another one."""
    context = store.for_store()
    with context.with_session("model") as s:
        inc = tool_of(context, "counter_inc")
        assert set(inc.args) == {"n"}
        with context.with_session("other"):
            assert [called(inc).content for _ in range(3)] == ["1", "2", "3"]
        assert s.use_tool("inc").text == "4"
        failed = called(tool_of(context, "counter_fail"))
        assert failed.status == "error"
    with pytest.raises(SessionClosed):
        called(inc)


@pytest.mark.thorough
async def test_tools_that_were_listed_before_find_the_session_when_they_are_called(
    store: MCPStore,
) -> None:
    """LangGraph gets the same tools with and without await; other frameworks have no adapter."""
    context = store.for_agent("graph")
    await context.add_service_async({"name": "counter", **service("asking")})
    tools = {tool.name: tool for tool in await context.for_langgraph().list_tools_async()}
    inc = tools["counter_inc"]
    assert [await inc.ainvoke({}) for _ in range(2)] == ["1", "1"]
    await context.session_auto_async()
    assert [await inc.ainvoke({}), inc.invoke({"n": 2})] == ["1", "3"]
    async with context.with_session_async("block") as s:
        assert await inc.ainvoke({}) == "1"
        await s.unbind_service_async("counter")
    assert await inc.ainvoke({}) == "4"
    await context.session_manual_async()
    for framework in ("llamaindex", "crewai", "autogen", "semantic_kernel", "openai"):
        assert not hasattr(context, f"for_{framework}")
