"""The fast path of legacy calls, with real clients over the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import mcp_types as types
import psutil
import pytest
from mcp.shared.exceptions import MCPError
from support.gateway_process import (
    JSON,
    Running,
    Way,
    code_of,
    opened_session,
    service,
    structured,
    text_of,
)


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"server": {"auto_session": True}, "services": {"quick": service("asking")}}


@pytest.fixture(scope="module")
def legacy(server: Running, config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Way:
    return Way("http", "legacy", config_file, tmp_path_factory.mktemp("way"), url=server.url)


async def test_a_legacy_client_keeps_its_connection(legacy: Way, server: Running) -> None:
    port = int(server.url.rpartition(":")[2])

    def connections() -> set[int]:
        found = psutil.Process().net_connections("tcp")
        return {c.laddr.port for c in found if c.raddr and c.raddr.port == port}

    async with legacy.connect() as client:
        session = await opened_session(client)
        await client.call_tool("inc", {"session_id": session})
        before = connections()
        after: set[int] = set()
        for _ in range(50):
            await client.call_tool("inc", {"session_id": session})
            after |= connections()
        found = structured(await client.call_tool("get", {"session_id": session}))
    assert found["count"] == 51
    assert after == before
    # One connection is for the calls, and one for the stream of unrequested messages.
    assert len(after) <= 2


async def test_a_legacy_client_is_asked_and_told(legacy: Way) -> None:
    async def elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": params.message})

    async def sample(_: object, params: object) -> types.CreateMessageResult:
        said = types.TextContent(text="a sample")
        return types.CreateMessageResult(role="assistant", content=said, model="a person")

    options: JSON = {"elicitation_callback": elicit, "sampling_callback": sample}
    async with legacy.connect(**options) as client:
        session = await opened_session(client)
        for tool, said in (("ask", "What is the answer?"), ("sample", "a sample")):
            with anyio.fail_after(20):
                result = await client.call_tool(tool, {"session_id": session})
            assert said in text_of(result)


async def test_a_client_of_mcp_1_30_is_asked_and_told(
    server: Running, mcp130: Callable[[JSON, list[JSON]], Awaitable[list[JSON]]]
) -> None:
    elicit = {"action": "accept", "content": {"answer": "42"}}
    settings = {"url": f"{server.url}/mcp", "transport": "http", "elicit": elicit, "sample": "said"}
    slow = {"seconds": 0.05}
    commands = [
        {"do": "call", "tool": tool, "arguments": arguments}
        for tool, arguments in (("ask", {}), ("sample", {}), ("slow", slow), ("inc", {}))
    ]
    asked, sampled, slowed, counted = await mcp130(settings, commands)
    assert "42" in asked["result"]["content"][-1]["text"]
    assert "said" in sampled["result"]["content"][-1]["text"]
    assert [step[0] for step in slowed["progress"]] == [1, 2, 3, 4, 5]
    assert counted["result"]["structuredContent"]["count"] == 1


async def test_a_cancelled_call_of_a_legacy_client_ends(legacy: Way) -> None:
    async with legacy.connect() as client:
        session = await opened_session(client)
        with pytest.raises(MCPError, match="imed out"):
            await client.call_tool("hang", {"session_id": session}, read_timeout_seconds=0.3)
        with anyio.fail_after(20):
            info = structured(await client.call_tool("session_info", {"session_id": session}))
            while info["in_flight"]:
                info = structured(await client.call_tool("session_info", {"session_id": session}))
        assert info["status"] == "idle"
        refused = await client.call_tool("get", {"session_id": "sh_" + "a" * 26})
        assert code_of(refused) == "session_not_found"
