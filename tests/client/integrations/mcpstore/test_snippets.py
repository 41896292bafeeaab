"""The snippets of MCPStore's page about sessions, run as printed except for the addresses."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer
from support.gateway_process import UPSTREAMS
from support.listening import run_listening
from support.selection import matrix

from statehold.client.integrations.mcpstore import MCPStore

PAGE = Path(__file__).resolve().parents[4] / "docs" / "use" / "coming-from.md"
SETUP = """
store = MCPStore.setup_store()
store.for_store().add_service({"name":"browser","url":"http://127.0.0.1:8931/sse"})
store.for_store().wait_service("browser")

with store.for_store().with_session("browser_task") as s:
    s.bind_service("browser")
    s.use_tool("browser_navigate", {"url": "https://baidu.com"})
"""
ASYNC = """
async with store.for_store().with_session_async("browser_task") as s:
    await s.bind_service_async("browser")
    await s.use_tool_async("browser_navigate", {"url": "https://baidu.com"})
"""
AWAITED = """
async with await store.for_agent("team_1").with_session_async("browser_task") as s:
    await s.bind_service_async("browser")
    await s.use_tool_async("browser_navigate", {"url": "https://baidu.com"})
"""
AUTO = """
store.for_store().session_auto()
store.for_store().use_tool("browser_navigate", {"url": "https://baidu.com"})
store.for_store().use_tool("browser_take_screenshot", {})
store.for_store().session_manual()
"""
EXPLICIT = """
session = store.for_store().create_session("langchain_browser")
session.bind_service("browser")
session.use_tool("browser_navigate", {"url": "https://baidu.com"})
session.close_session()
"""
OF_THE_STORE = """
with store.for_store().with_session("store_browser") as s:
    s.bind_service("browser")
    s.use_tool("browser_navigate", {"url": "https://baidu.com"})
"""
OF_AN_AGENT = """
agent = store.for_agent("team_1")
with agent.with_session("team1_browser") as s:
    s.bind_service("browser")
    s.use_tool("browser_navigate", {"url": "https://baidu.com"})
"""
LANGCHAIN = """
with store.for_store().with_session("langchain_browser"):
    tools = store.for_store().for_langchain().list_tools()
    agent = create_tool_calling_agent(llm, tools, prompt)
    AgentExecutor(agent=agent, tools=tools).invoke({"input": "打开百度并截图"})
"""
LANGCHAIN_AUTO = """
store.for_store().session_auto()
tools = store.for_store().for_langchain().list_tools()
agent = create_tool_calling_agent(llm, tools, prompt)
AgentExecutor(agent=agent, tools=tools).invoke({"input": "打开百度并截图"})
"""


@pytest.fixture(scope="module")
def browser(fork_server: ForkServer) -> Generator[str]:
    """The address of a browser that serves SSE."""
    program = str(UPSTREAMS / "pages.py")
    with run_listening(fork_server.command(program, "--transport", "sse")) as port:
        yield f"http://127.0.0.1:{port}/sse"


@pytest.fixture(scope="module")
def store(browser: str) -> Generator[MCPStore]:
    scope = ran(SETUP.replace("http://127.0.0.1:8931/sse", browser), {"MCPStore": MCPStore})
    assert not scope["s"].is_active
    with scope["store"] as opened:
        opened.for_agent("team_1").add_service({"name": "browser", "url": browser})
        yield opened


def ran(snippet: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Run a snippet and return its variables."""
    variables = dict(scope)
    exec(compile(snippet, "snippet", "exec"), variables)
    return variables


def shown_in(session: Any) -> str:
    """Return which page a session is on."""
    return session.use_tool("browser_take_screenshot").text


def test_the_page_begins_with_a_program_that_runs(browser: str) -> None:
    program = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert "http://127.0.0.1:8931/sse" in program
    scope = ran(program.replace("http://127.0.0.1:8931/sse", browser), {})
    assert not scope["s"].is_active
    scope["store"].close()


@pytest.mark.parametrize("snippet", matrix(OF_AN_AGENT, OF_THE_STORE), ids=["agent", "store"])
def test_a_block_keeps_the_page_and_ends(store: MCPStore, snippet: str) -> None:
    program = snippet + "    page = s.use_tool('browser_take_screenshot').text\n"
    scope = ran(program, {"store": store})
    assert scope["page"] == "https://baidu.com"
    assert scope["s"].session_id in ("store_browser", "team1_browser")
    assert not scope["s"].is_active


@pytest.mark.parametrize("snippet", [ASYNC, AWAITED], ids=["documented", "awaited"])
async def test_a_block_of_async_code_is_no_coroutine(store: MCPStore, snippet: str) -> None:
    scope: dict[str, Any] = {"store": store}
    code = compile(snippet, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, scope)
    assert inspect.iscoroutine(running)
    await running
    assert not await scope["s"].is_active_async()


def test_calls_without_a_block_share_a_session_until_it_is_manual(store: MCPStore) -> None:
    context = store.for_store()
    head, tail = AUTO.split("store.for_store().session_manual()")
    ran(head, {"store": store})
    (session,) = context.list_sessions()
    assert shown_in(context) == "https://baidu.com"
    ran("store.for_store().session_manual()" + tail, {"store": store})
    assert not session.is_active
    assert shown_in(context) == "about:blank"


def test_a_session_is_made_used_and_closed_by_hand(store: MCPStore) -> None:
    session = ran(EXPLICIT, {"store": store})["session"]
    assert session.session_id == "langchain_browser"
    assert not session.is_active


class Executor:
    """The part of AgentExecutor that a script needs: its model calls these tools, whatever the question is."""

    def __init__(self, agent: Any, tools: list[Any]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        assert agent == ("llm", tools, "prompt")

    def invoke(self, given: dict[str, str]) -> None:
        for name, arguments in (
            ("browser_navigate", {"url": "https://baidu.com"}),
            ("browser_take_screenshot", {}),
        ):
            tool = self.tools[name]
            assert "session_id" not in tool.args
            call = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
            SEEN.append(tool.invoke(call))


SEEN: list[Any] = []


@pytest.fixture
def agents() -> dict[str, Any]:
    """The names that the snippets expect from elsewhere."""
    SEEN.clear()
    return {
        "create_tool_calling_agent": lambda *parts: parts,  # pyright: ignore[reportUnknownLambdaType]
        "AgentExecutor": Executor,
        "llm": "llm",
        "prompt": "prompt",
    }


@pytest.mark.parametrize("snippet", matrix(LANGCHAIN, LANGCHAIN_AUTO), ids=["block", "auto"])
def test_an_agent_takes_a_picture_of_the_page_that_it_opened(
    store: MCPStore, agents: dict[str, Any], snippet: str
) -> None:
    ran(snippet, {"store": store, **agents})
    store.for_store().session_manual()
    page, picture = SEEN
    assert page.content == "https://baidu.com"
    text, image = picture.content
    assert text["text"] == "https://baidu.com"
    assert image["mime_type"] == "image/png"
    assert re.match("iVBOR", picture.artifact["images"][0]["base64"])
    assert store.for_store().list_sessions() == []
