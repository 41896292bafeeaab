"""The tools of a session in LangChain, in both clients, alone and in an agent of LangGraph with a scripted model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from importlib.metadata import requires
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field
from support.gateway_process import JSON, UPSTREAMS, Running, service, serving, toml

from statehold.client import Client, connect, sync
from statehold.client.errors import NoCurrentSession, SessionClosed, ToolFailed
from statehold.client.integrations.langchain import SessionToolError, langchain_tools
from statehold.client.sync.langchain import langchain_tools as blocking_tools

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURES = f"""
import sys
sys.path.insert(0, {str(UPSTREAMS)!r})
from quick import Quick, tool

class Pictures(Quick):
    def __init__(self):
        super().__init__()
        self.tools = [tool("picture"), tool("reject")]

    def tool_reject(self, *_):
        return {{"content": [], "structuredContent": {{"reason": "no seats"}}, "isError": True}}

    def tool_picture(self, *_):
        return {{"content": [{{"type": "image", "data": {PIXEL!r}, "mimeType": "image/png"}}]}}

Pictures().run()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A Statehold with few toolsets and a service that answers with pictures."""
    folder = tmp_path_factory.mktemp("agents")
    config = folder / "statehold.toml"
    pictures = {"command": sys.executable, "args": ["-c", PICTURES]}
    own = service("asking", "--own-session", include=["own_session"])
    services = {"quick": service("asking"), "pictures": pictures, "own": own}
    config.write_text(toml({"toolsets": ["core", "state"], "services": services}))
    with serving(config, folder / "data") as running:
        yield running


@pytest.fixture(scope="module")
async def client(server: Running) -> AsyncGenerator[Client]:
    async with connect(server.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def blocking(server: Running) -> Generator[sync.Client]:
    with sync.connect(server.url) as connected:
        yield connected


class Scripted(GenericFakeChatModel):
    """A model that makes scripted calls, and keeps the tool descriptions that it was shown."""

    shown: list[JSON] = Field(default_factory=list[JSON])

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        self.shown += [convert_to_openai_tool(tool) for tool in tools]
        return self


def asks(tool: str, **arguments: Any) -> JSON:
    return {"type": "tool_call", "id": f"call-{tool}", "name": tool, "args": arguments}


def script(*calls: JSON) -> Scripted:
    turns = [AIMessage("", tool_calls=[call]) for call in calls]
    return Scripted(messages=iter([*turns, AIMessage("done")]))


def agent(model: Scripted, tools: list[Any]) -> Any:
    bound = model.bind_tools(tools)

    def think(state: MessagesState) -> JSON:
        return {"messages": [bound.invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools))
    graph.set_entry_point("model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def tool_messages(result: JSON) -> list[ToolMessage]:
    return [each for each in result["messages"] if isinstance(each, ToolMessage)]


def find_tool(tools: Sequence[BaseTool], name: str) -> BaseTool:
    return next(tool for tool in tools if tool.name == name)


ASKED: JSON = {"messages": [("user", "count")]}


async def test_an_agent_keeps_state_and_sees_no_session_id(client: Client) -> None:
    """Three calls of an agent with a scripted model continue one count in one session."""
    model = script(*[asks("inc")] * 3)
    async with client.session(services=["quick", "own"]) as s:
        result = await agent(model, await s.langchain_tools()).ainvoke(ASKED)
        assert [message.content for message in tool_messages(result)] == ["1", "2", "3"]
        assert tool_messages(result)[2].artifact["structured_content"]["count"] == 3
        assert tool_messages(result)[2].artifact["session"]["id"] == s.id
        assert (await s.call("get")).text == "3"
    assert {tool["function"]["name"] for tool in model.shown} >= {"inc", "get", "own_session"}
    shown = {tool["function"]["name"]: tool["function"]["parameters"] for tool in model.shown}
    # A tool's own argument of that name is its own; ours is nowhere.
    assert list(shown.pop("own_session")["properties"]) == ["session_id"]
    assert "session_id" not in str(shown)


def test_an_agent_that_blocks_is_bound_as_well(blocking: sync.Client) -> None:
    """The blocking client does the same."""
    with blocking.session(services=["quick"]) as s:
        result = agent(script(*[asks("inc", n=2)] * 3), s.langchain_tools()).invoke(ASKED)
        assert [message.content for message in tool_messages(result)] == ["2", "4", "6"]
    assert [tool.name for tool in blocking_tools(blocking, names=["inc"])] == ["inc"]


async def test_tools_of_a_client_use_the_session_of_their_call(client: Client) -> None:
    """Tools that were listed before any session existed use the current one, or that of auto_session()."""
    tools = await langchain_tools(client)
    inc = find_tool(tools, "inc")
    with pytest.raises(NoCurrentSession):
        await inc.ainvoke({})
    async with client.session(services=["quick"]):
        result = await agent(script(*[asks("inc")] * 2), tools).ainvoke(ASKED)
        assert [message.content for message in tool_messages(result)] == ["1", "2"]
    async with client.auto_session(services=["quick"]) as auto:
        assert [await inc.ainvoke({}) for _ in range(3)] == ["1", "2", "3"]
        assert (await (await auto.session()).call("get")).text == "3"


async def test_a_tool_of_the_async_client_says_how_to_call_it(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        [inc] = await s.langchain_tools(names=["inc"])
        with pytest.raises(NotImplementedError, match=r"ainvoke.*statehold\.client\.sync"):
            inc.invoke({})
        assert await inc.ainvoke({}) == "1"


async def test_names_of_tools_are_a_list(client: Client, blocking: sync.Client) -> None:
    with pytest.raises(TypeError, match="names is a list"):
        await langchain_tools(client, names="inc")
    with pytest.raises(TypeError, match="names is a list"):
        blocking_tools(blocking, names="inc")


async def test_a_bound_tool_works_outside_of_its_block_until_the_session_is_closed(
    client: Client,
) -> None:
    """A tool carries its session, wherever it is called."""
    session = await client.create(services=["quick"])
    inc = find_tool(await session.langchain_tools(), "inc")
    async with client.session(services=["quick"]):
        assert await inc.ainvoke({}) == "1"
    assert await inc.ainvoke({}) == "2"
    await session.close()
    # No model can open it again, so this is for the program.
    with pytest.raises(SessionClosed):
        await inc.ainvoke(asks("inc"))


async def test_a_model_reads_the_errors_that_it_can_act_on(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        tools = await s.langchain_tools(names=["fail", "hang", "inc"], read_timeout_seconds=1.0)
        failed = await find_tool(tools, "fail").ainvoke(asks("fail"))
        assert (failed.status, failed.content) == ("error", "it failed")
        late = await find_tool(tools, "hang").ainvoke(asks("hang"))
        assert late.status == "error"
        assert late.content.startswith("call_timeout: ")
        assert "\n" in late.content
        [raising] = await s.langchain_tools(names=["fail"], handle_tool_error=False)
        with pytest.raises(ToolException) as caught:
            await raising.ainvoke({})
        assert isinstance(caught.value, SessionToolError)
        assert (caught.value.code, type(caught.value.error)) == ("tool_failed", ToolFailed)
        with pytest.raises(ValueError, match="there is no tool nosuch"):
            await s.langchain_tools(names=["nosuch"])


async def test_images_are_blocks_for_the_model_and_kept_in_the_artifact(
    client: Client,
) -> None:
    async with client.session(services=["pictures"]) as s:
        [picture] = await s.langchain_tools(names=["picture"])
        shown = await picture.ainvoke(asks("picture"))
        [block] = shown.content
        assert block == {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
        assert shown.artifact["images"] == [block]
        [blind] = await s.langchain_tools(names=["picture"], images=False)
        described = await blind.ainvoke(asks("picture"))
        assert described.content == "[an image: image/png]"
        assert described.artifact["images"] == [block]


async def test_arguments_arrive_as_they_are_and_our_own_tools_can_be_given(
    client: Client,
) -> None:
    arguments = {
        "config": 1,
        "run_manager": 2,
        "callbacks": 3,
        "self": 4,
        "runtime": 5,
        "name": None,
    }
    async with client.session(services=["quick"], state={"a": 1}) as s:
        echo, state = await s.langchain_tools(names=["state_get", "echo"])
        if echo.name != "echo":
            echo, state = state, echo
        echoed = await echo.ainvoke(asks("echo", **arguments))
        assert echoed.artifact["structured_content"]["arguments"] == arguments
        result = await state.ainvoke(asks("state_get", path="/a"))
        assert result.artifact["structured_content"]["value"] == 1


@pytest.mark.thorough
def test_only_the_extra_brings_langchain_and_without_it_the_error_names_it() -> None:
    wanted = [each for each in requires("statehold") or () if "lang" in each]
    assert [each.replace("'", '"') for each in wanted] == [
        'langchain-core>=1.2; extra == "langchain"'
    ]
    program = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import statehold.client\n"
        "try: import statehold.client.integrations.langchain\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'statehold[langchain]'" in done.stdout, done.stderr


async def test_an_error_without_text_is_told_by_its_structured_content(
    client: Client, blocking: sync.Client
) -> None:
    async with client.session(services=["pictures"]) as s:
        with pytest.raises(ToolFailed, match="no seats"):
            await s.call("reject")
        assert (await s.call_tool("reject", check=False)).text == '{"reason": "no seats"}'
        message = await find_tool(await s.langchain_tools(), "reject").ainvoke(asks("reject"))
        assert (message.status, message.content) == ("error", '{"reason": "no seats"}')
        assert message.artifact["structured_content"] == {"reason": "no seats"}
    with blocking.session(services=["pictures"]) as s:
        message = find_tool(s.langchain_tools(), "reject").invoke(asks("reject"))
        assert message.artifact["structured_content"] == {"reason": "no seats"}


async def test_a_list_without_tools_is_warned_of(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.session(services=[]) as session:
        assert await session.langchain_tools() == []
    assert "no service offers a tool now" in caplog.text
