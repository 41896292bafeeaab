"""Questions and messages of an upstream on the real SDK, in all four pairings of the two eras."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import JSON, UPSTREAMS, Way, count, opened_session, structured, text_of
from support.selection import matrix

from statehold.server.gateway.gateway import Gateway

heard: list[str] = []


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer) -> JSON:
    return {
        "services": {
            "legacy": fork_server.service(
                UPSTREAMS / "counter.py", "--era", "legacy", prefix="legacy_"
            ),
            "modern": fork_server.service(
                UPSTREAMS / "counter.py", "--era", "modern", prefix="modern_"
            ),
        }
    }


async def elicit(context: object, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"answer": params.message})


async def sample(context: object, params: Any) -> types.CreateMessageResult:
    content = types.TextContent(text="a sample")
    return types.CreateMessageResult(role="assistant", content=content, model="a person")


async def log(params: types.LoggingMessageNotificationParams) -> None:
    heard.append(str(params.data))


@pytest.fixture(scope="module")
async def person(memory: Way) -> AsyncGenerator[Client]:
    options: JSON = {"elicitation_callback": elicit, "sampling_callback": sample}
    async with memory.connect(logging_callback=log, log_level="info", **options) as client:
        yield client


@pytest.fixture(scope="module")
async def session(person: Client) -> str:
    return await opened_session(person)


@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_an_sdk_server_asks_and_logs_as_over_a_direct_connection(
    gateway: Gateway, person: Client, session: str, era: str
) -> None:
    # An SDK server takes more than a second to start, which the list does not always wait for.
    await gateway.probes.ready()
    one = {"session_id": session}
    with anyio.fail_after(40):
        before = await count(person, session, f"{era}_inc")
        answered = await person.call_tool(f"{era}_ask", {**one, "question": "Who?"})
        assert f'"{era} asks: Who?"' in text_of(answered).replace("\\", "")
        sampled = await person.call_tool(f"{era}_sample", one)
        assert "a sample" in text_of(sampled)
        heard.clear()
        await person.call_tool(f"{era}_log", {**one, "text": f"{era} says"})
        assert heard == [f"{era} says"]
        assert await count(person, session, f"{era}_inc") == before + 1
        echoed = structured(await person.call_tool(f"{era}_echo", {**one, "n": 2**63 - 1}))
        assert json.loads(json.dumps(echoed["arguments"])) == {"n": 2**63 - 1}


@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_an_sdk_server_asks_during_prompts_and_resources(
    gateway: Gateway, person: Client, session: str, era: str
) -> None:
    await gateway.probes.ready()
    with anyio.fail_after(40):
        wanted = {"session_id": session, "tone": "asked"}
        prompt = await person.get_prompt(f"{era}_report", wanted)
        content = prompt.messages[0].content
        assert isinstance(content, types.TextContent)
        assert "Which tone?" in content.text
        read = await person.read_resource(f"session://{session}/{era}/counter%3A%2F%2Fasked")
        part = read.contents[0]
        assert isinstance(part, types.TextResourceContents)
        assert "Which resource?" in part.text
        info = structured(await person.call_tool("session_info", {"session_id": session}))
        assert (info["status"], info["in_flight"]) == ("idle", 0)
