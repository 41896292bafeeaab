"""The reference servers of the protocol behind Statehold, called by the SDK's client in both eras and by mcp 1.30."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.context import ClientRequestContext
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    Way,
    meta_of,
    opened_session,
    structured,
    text_of,
)

pytestmark = pytest.mark.peer

Older = Callable[[JSON, list[JSON]], Awaitable[list[JSON]]]
ANSWERS: JSON = {"name": "Ada", "check": True}


class Human:
    """A user who answers the questions of a server and receives its messages."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.heard = anyio.Event()

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content=dict(ANSWERS))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        content = params.messages[0].content
        assert isinstance(content, types.TextContent)
        self.asked.append(content.text)
        reply = types.TextContent(text="a poem about harbours")
        return types.CreateMessageResult(role="assistant", content=reply, model="a human")

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        if "level" in str(params.data):
            self.heard.set()


@pytest.fixture(scope="module")
async def human(way: Way) -> Human:
    """One user for each transport and era, so that no message counts twice."""
    return Human()


@pytest.fixture(scope="module")
async def client(way: Way, human: Human) -> AsyncGenerator[Client]:
    """One connection for the tests of a way."""
    async with way.connect(
        elicitation_callback=human.elicit,
        sampling_callback=human.sample,
        logging_callback=human.log,
        log_level="debug",
    ) as connected:
        yield connected


@pytest.fixture(scope="module")
async def session(client: Client) -> str:
    return await opened_session(client)


async def test_tools_of_both_servers_work_unmodified(client: Client, session: str) -> None:
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"echo", "get-sum", "create_entities", "read_graph", "session_create"} <= names
    arguments = {"session_id": session, "a": 2, "b": 40}
    result = await client.call_tool("get-sum", arguments, meta=ASKS_SESSION)
    assert "42" in text_of(result)
    assert meta_of(result)["statehold/session"]["id"] == session
    image = await client.call_tool("get-tiny-image", {"session_id": session})
    assert "image" in {block.type for block in image.content}
    weather = {"session_id": session, "location": "Chicago"}
    assert structured(await client.call_tool("get-structured-content", weather))["conditions"]


async def test_progress_of_a_long_operation_arrives(client: Client, session: str) -> None:
    progress_values: list[float] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        progress_values.append(progress)

    arguments = {"session_id": session, "duration": 0.2, "steps": 4}
    with anyio.fail_after(20):
        await client.call_tool("trigger-long-running-operation", arguments, progress_callback=told)
    assert progress_values == [1, 2, 3, 4]


async def test_a_log_message_of_a_server_arrives(
    client: Client, session: str, human: Human
) -> None:
    arguments = {"session_id": session}
    with anyio.fail_after(20):
        await client.call_tool("toggle-simulated-logging", arguments)
        await human.heard.wait()
        await client.call_tool("toggle-simulated-logging", arguments)


async def test_questions_of_a_server_reach_the_user(
    client: Client, session: str, human: Human
) -> None:
    one = {"session_id": session}
    with anyio.fail_after(20):
        elicited = await client.call_tool("trigger-elicitation-request", one)
        sampled = await client.call_tool("trigger-sampling-request", {**one, "prompt": "a poem"})
    assert "Ada" in str(elicited.content)
    assert "a poem about harbours" in str(sampled.content)
    assert len(human.asked) == 2
    assert "a poem" in human.asked[1]


@pytest.mark.thorough
async def test_resources_are_read_through_their_session(client: Client, session: str) -> None:
    templates = [
        t.uri_template for t in (await client.list_resource_templates()).resource_templates
    ]
    assert "session://{session_id}/everything/{uri}" in templates
    result = await client.call_tool("get-resource-links", {"session_id": session, "count": 2})
    links = [block for block in result.content if isinstance(block, types.ResourceLink)]
    assert len(links) == 2
    for link in links:
        assert link.uri.startswith(f"session://{session}/everything/demo%3A")
        read = (await client.read_resource(link.uri)).contents[0]
        assert read.uri == link.uri


@pytest.mark.thorough
async def test_two_sessions_have_memories_of_their_own(client: Client, session: str) -> None:
    other = await opened_session(client, services=["memory"])
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes harbours"]}
    arguments = {"session_id": session, "entities": [entity]}
    assert not (await client.call_tool("create_entities", arguments)).is_error
    mine = structured(await client.call_tool("read_graph", {"session_id": session}))
    others = structured(await client.call_tool("read_graph", {"session_id": other}))
    assert [each["name"] for each in mine["entities"]] == ["Ada"]
    assert others["entities"] == []


@pytest.mark.thorough
async def test_an_older_client_uses_all_of_it(older: JSON, mcp130: Older) -> None:
    name = f"older {older.get('transport', 'stdio')}"
    one = {"session_id": name}
    commands: list[tuple[str, JSON]] = [
        ("session_create", {"name": name}),
        ("get-sum", {**one, "a": 2, "b": 40}),
        ("trigger-long-running-operation", {**one, "duration": 0.2, "steps": 4}),
        ("toggle-simulated-logging", one),
        ("trigger-elicitation-request", one),
        ("trigger-sampling-request", {**one, "prompt": "a poem"}),
        (
            "create_entities",
            {**one, "entities": [{"name": "Bob", "entityType": "person", "observations": []}]},
        ),
        ("read_graph", one),
    ]
    settings = {
        **older,
        "elicit": {"action": "accept", "content": ANSWERS},
        "sample": "a poem about harbours",
    }
    requests: list[JSON] = [{"do": "list"}, {"do": "prompts"}]
    requests += [
        {"do": "call", "tool": tool, "arguments": arguments} for tool, arguments in commands
    ]
    listed, prompts, *answers = await mcp130(settings, requests)
    assert "echo" in {tool["name"] for tool in listed["result"]["tools"]}
    assert "args-prompt" in {prompt["name"] for prompt in prompts["result"]["prompts"]}
    for answer in answers:
        assert answer["ok"], answer
        assert not answer["result"]["isError"], answer
    created, summed, long, _, elicited, sampled, _, graph = answers
    assert created["result"]["structuredContent"]["session_id"]
    assert "42" in str(summed["result"]["content"])
    assert [done for done, _, _ in long["progress"]] == [1, 2, 3, 4]
    assert any("level" in str(line) for answer in answers for line in answer["logs"])
    assert "Ada" in str(elicited["result"]["content"])
    assert "a poem about harbours" in str(sampled["result"]["content"])
    assert [len(elicited["asked"]), len(sampled["asked"])] == [1, 1]
    names = [entity["name"] for entity in graph["result"]["structuredContent"]["entities"]]
    assert names == ["Bob"]
