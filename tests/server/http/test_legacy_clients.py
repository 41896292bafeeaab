"""The fast path of legacy calls, with real clients over the network."""

from __future__ import annotations

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
from support.waiting import until


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"server": {"auto_session": True}, "services": {"quick": service("asking")}}


@pytest.fixture(scope="module")
def legacy(server: Running, config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Way:
    return Way("http", "legacy", config_file, tmp_path_factory.mktemp("way"), url=server.url)


@pytest.mark.thorough
async def test_a_legacy_client_keeps_its_connection(legacy: Way, server: Running) -> None:
    port = int(server.url.rpartition(":")[2])

    def connections() -> set[int]:
        sockets = psutil.Process().net_connections("tcp")
        return {c.laddr.port for c in sockets if c.raddr and c.raddr.port == port}

    async with legacy.connect() as client:
        session = await opened_session(client)
        await client.call_tool("inc", {"session_id": session})
        # One connection is for the calls, and one for the stream of unrequested messages.
        before = await until(lambda: ports if len(ports := connections()) == 2 else set[int]())
        after: set[int] = set()
        for _ in range(20):
            await client.call_tool("inc", {"session_id": session})
            after |= connections()
        content = structured(await client.call_tool("get", {"session_id": session}))
    assert content["count"] == 21
    assert after == before


async def test_a_legacy_client_answers_questions_during_a_call(legacy: Way) -> None:
    async def elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": params.message})

    async def sample(_: object, params: object) -> types.CreateMessageResult:
        content = types.TextContent(text="a sample")
        return types.CreateMessageResult(role="assistant", content=content, model="a person")

    options: JSON = {"elicitation_callback": elicit, "sampling_callback": sample}
    async with legacy.connect(**options) as client:
        session = await opened_session(client)
        for tool, content in (("ask", "What is the answer?"), ("sample", "a sample")):
            with anyio.fail_after(20):
                result = await client.call_tool(tool, {"session_id": session})
            assert content in text_of(result)


async def test_a_cancelled_call_of_a_legacy_client_ends(legacy: Way) -> None:
    async with legacy.connect() as client:
        session = await opened_session(client)
        with pytest.raises(MCPError, match="imed out"):
            await client.call_tool("hang", {"session_id": session}, read_timeout_seconds=0.3)

        async def idle_info() -> JSON | None:
            info = structured(await client.call_tool("session_info", {"session_id": session}))
            return None if info["in_flight"] else info

        info = await until(idle_info)
        assert info is not None
        assert info["status"] == "idle"
        refused = await client.call_tool("get", {"session_id": "sh_" + "a" * 26})
        assert code_of(refused) == "session_not_found"
