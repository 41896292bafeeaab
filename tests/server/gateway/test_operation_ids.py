"""At most once, as a client sees it: in both protocol eras."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult
from support.fork_server import ForkServer
from support.gateway_process import (
    IN_PROCESS,
    JSON,
    UPSTREAMS,
    Way,
    code_of,
    opened_session,
    service,
    structured,
)
from support.selection import matrix_of

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer

WAYS = matrix_of(IN_PROCESS)


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer) -> JSON:
    return {
        "services": {
            "quick": service("asking"),
            "counter": fork_server.service(UPSTREAMS / "counter.py", prefix="c_"),
        }
    }


def once(operation: object) -> Any:
    return {"statehold/operation_id": operation}


async def test_a_repeat_gets_the_recorded_result(client: Client) -> None:
    session = await opened_session(client)
    arguments = {"session_id": session}
    first = await client.call_tool("inc", arguments, meta=once("a"))
    again = await client.call_tool("inc", arguments, meta=once("a"))
    assert again.content == first.content
    assert again.structured_content == first.structured_content
    assert structured(await client.call_tool("inc", arguments, meta=once("b")))["count"] == 2


async def test_an_image_comes_back_whole(client: Client) -> None:
    session = await opened_session(client)
    arguments = {"session_id": session, "kib": 300}
    first = await client.call_tool("c_image", arguments, meta=once("a"))
    again = await client.call_tool("c_image", arguments, meta=once("a"))
    assert again.content == first.content
    assert len(first.content[0].model_dump_json()) > 300_000


async def test_repeats_at_once_run_once(client: Client) -> None:
    session = await opened_session(client)
    counts: list[int] = []

    async def one() -> None:
        result = await client.call_tool("inc", {"session_id": session}, meta=once("x" * 128))
        counts.append(structured(result)["count"])

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert counts == [1] * 10


async def test_an_id_of_another_call_is_refused(client: Client) -> None:
    session = await opened_session(client)
    await client.call_tool("inc", {"session_id": session}, meta=once("a"))
    for tool, more in (("get", {}), ("inc", {"n": 2})):
        arguments = {"session_id": session, **more}
        refused = await client.call_tool(tool, arguments, meta=once("a"))
        assert code_of(refused) == "invalid_argument"


@pytest.mark.parametrize("operation", ["", "x" * 129, 5, None, ["a"]])
async def test_a_malformed_id_is_refused(client: Client, operation: object) -> None:
    session = await opened_session(client)
    refused = await client.call_tool("inc", {"session_id": session}, meta=once(operation))
    if operation is None:
        assert structured(refused)["count"] == 1
    else:
        assert code_of(refused) == "invalid_argument"
        assert structured(await client.call_tool("inc", {"session_id": session}))["count"] == 1


async def test_a_settled_operation_is_forgotten(client: Client) -> None:
    session = await opened_session(client)
    arguments = {"session_id": session}
    for operation in ("a", "b"):
        await client.call_tool("inc", arguments, meta=once(operation))
    settling: Any = {**once("c"), "statehold/settled": ["a", "nothing"]}
    assert structured(await client.call_tool("inc", arguments, meta=settling))["count"] == 3
    # The caller has acknowledged the result, and so will not repeat the call.
    counts = [
        structured(await client.call_tool("inc", arguments, meta=once(operation)))["count"]
        for operation in ("a", "b", "c")
    ]
    assert counts == [4, 2, 3]
    for wrong in ("a", [1], ["x"] * 1001):
        settling = {**once("d"), "statehold/settled": wrong}
        refused = await client.call_tool("inc", arguments, meta=settling)
        assert code_of(refused) == "invalid_argument"


async def test_a_json_rpc_error_of_a_server_is_repeated_as_it_was(client: Client) -> None:
    session = await opened_session(client)
    errors: list[Any] = []
    for _ in range(2):
        with pytest.raises(MCPError) as error_info:
            await client.call_tool("refuse", {"session_id": session}, meta=once("a"))
        errors.append(error_info.value.error)
    assert errors[0] == errors[1]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_pinned_session_has_operations_too(gateway: Gateway, mode: str) -> None:
    mcp_server = StateholdServer(gateway, version="0", pinned_name=f"operations {mode}")
    async with Client(mcp_server, mode=mode, cache=None) as client:
        counts = [
            structured(await client.call_tool("inc", {}, meta=once(operation)))["count"]
            for operation in ("a", "a", "b")
        ]
    assert counts == [1, 1, 2]


async def test_a_caller_that_is_asked_answers_once(way: Way) -> None:
    questions: list[object] = []

    async def answer(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params)
        return ElicitResult(action="accept", content={"answer": "42"})

    async with way.connect(elicitation_callback=answer) as client:
        session = await opened_session(client)
        found = [
            (await client.call_tool("ask", {"session_id": session}, meta=once("a"))).content
            for _ in range(3)
        ]
    assert found[0] == found[1] == found[2]
    assert len(questions) == 1
