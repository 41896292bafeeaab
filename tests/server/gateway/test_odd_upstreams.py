"""HTTP upstreams that lose their sessions or refuse calls, as a client sees them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import mcp_types as types
import pytest
from support.gateway_process import JSON, Way, code_of, meta_of, opened_session, structured
from support.odd_http import OddServer, odd_server, page, rpc_error
from support.selection import matrix


@pytest.fixture(scope="module")
def odd() -> Generator[OddServer]:
    with odd_server(instructions="Count with inc.") as odd:
        yield odd


@pytest.fixture(scope="module")
def settings(odd: OddServer) -> JSON:
    return {"services": {"odd": {"url": odd.url}}}


def shown(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize("status", matrix(400, 404, 503))
async def test_one_call_tells_of_a_lost_session(way: Way, odd: OddServer, status: int) -> None:
    odd.forgotten = lambda message: rpc_error(status, -32000, "No valid session ID provided")
    async with way.connect() as client:
        session = await opened_session(client)
        arguments = {"session_id": session}
        assert structured(await client.call_tool("inc", arguments))["count"] == 1
        odd.counts.clear()
        told = shown(await client.call_tool("inc", arguments))
        assert "generation 1 to 2; the server no longer knows this session" in told
        after = await client.call_tool("inc", arguments)
        assert not after.is_error
        assert "generation" not in shown(after)
        info = structured(await client.call_tool("session_info", arguments))
        assert (info["status"], info["generation"]) == ("idle", 2)


@pytest.mark.parametrize("status", matrix(401, 429, 500))
async def test_an_http_error_is_one_that_a_model_can_act_on(
    way: Way, odd: OddServer, status: int
) -> None:
    async with way.connect() as client:
        session = await opened_session(client)
        answer = page(status, Retry_After="17")
        odd.refuse = lambda message: answer if message.get("method") == "tools/call" else None
        try:
            refused = await client.call_tool("inc", {"session_id": session})
        finally:
            odd.refuse = lambda message: None
        assert code_of(refused) == "service_unavailable"
        assert shown(refused).startswith(f"service_unavailable: odd answered HTTP {status}")
        assert meta_of(refused)["statehold/error"]["retry_after_seconds"] == 17
        assert structured(await client.call_tool("inc", {"session_id": session}))["count"] == 1


@pytest.mark.parametrize("status", matrix(429, 302, 401, 413))
async def test_a_call_that_did_not_run_leaves_its_operation_id_unused(
    way: Way, odd: OddServer, status: int
) -> None:
    async with way.connect() as client:
        session = await opened_session(client)
        meta: Any = {"statehold/operation_id": "a"}
        answer = page(status, **({"Location": "/elsewhere"} if status == 302 else {}))
        odd.refuse = lambda message: answer if message.get("method") == "tools/call" else None
        try:
            refused = await client.call_tool("inc", {"session_id": session}, meta=meta)
        finally:
            odd.refuse = lambda message: None
        assert "did not run" in str(meta_of(refused)["statehold/error"]["recovery"])
        for _ in range(2):
            repeat = await client.call_tool("inc", {"session_id": session}, meta=meta)
            assert structured(repeat)["count"] == 1
