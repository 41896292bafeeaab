"""Statehold behind nginx and HAProxy, with the files in deploy/: a request may reach any node, and nothing is held back."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from support.gateway_process import JSON, Way, count, opened_session, structured, text_of
from support.runs import clear, wait_for_call, wait_for_cancellation
from support.subscribers import subscribed

from statehold.server.http.exchange import BODY_LIMIT

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

VERSION = "2026-07-28"


async def test_every_call_of_a_session_reaches_it_over_new_connections(way: Way) -> None:
    async with way.connect() as client:
        sessions = [await opened_session(client) for _ in range(4)]
    for expected in (1, 2, 3):
        for session in sessions:
            async with way.connect() as client:
                assert await count(client, session) == expected


async def test_calls_at_once_all_run(way: Way) -> None:
    async with way.connect() as client, way.connect() as other:
        session = await opened_session(client)
        async with anyio.create_task_group() as tasks:
            for each in [client, other] * 10:
                tasks.start_soon(count, each, session)
        assert await count(client, session) == 21


async def test_each_note_arrives_before_the_next_one_is_sent(way: Way, tmp_path: Path) -> None:
    fifo = tmp_path / "steps"
    os.mkfifo(fifo)
    send, receive = anyio.create_memory_object_stream[float](100)
    results: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        await send.send(progress)

    async def call(client: Client, session: str) -> None:
        arguments = {"session_id": session, "fifo": str(fifo)}
        result = await client.call_tool("steps", arguments, progress_callback=note)
        results.append(text_of(result))

    with anyio.fail_after(30), send, receive:
        async with way.connect() as client:
            session = await opened_session(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, client, session)
                async with await anyio.open_file(fifo, "w") as steps:
                    for step in (1, 2, 3):
                        await steps.write("next\n")
                        await steps.flush()
                        assert await receive.receive() == step
    assert results == ["3"]


async def test_a_client_that_goes_away_cancels_its_call(way: Way, log: Path) -> None:
    clear(log)
    async with way.connect() as client:
        session = await opened_session(client)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "hang", {"session_id": session})
            await wait_for_call(log, "hang")
            tasks.cancel_scope.cancel()
        await wait_for_cancellation(log)
        assert await count(client, session) == 1


async def test_a_change_of_a_state_arrives_in_the_stream_of_a_subscriber(way: Way) -> None:
    async with way.connect() as client:
        session = await opened_session(client)
        address = f"session://{session}/state"
        async with subscribed(way, address) as (_, next_uri):
            for n in range(2):
                values = {"session_id": session, "values": {"n": n}}
                structured(await client.call_tool("state_update", values))
                assert await next_uri() == address


async def test_the_largest_request_is_passed_on_and_a_larger_one_refused(proxy: str) -> None:
    async with httpx2.AsyncClient(base_url=proxy, timeout=30) as http:
        message = request_message("server/discover")
        for size, statuses in ((BODY_LIMIT, {200}), (BODY_LIMIT + 1, {413})):
            body = message + b" " * (size - len(message))
            answer = await http.post("/mcp", content=body, headers=headers("server/discover"))
            assert answer.status_code in statuses, answer.text


async def test_host_and_origin_are_checked_by_the_node(proxy: str) -> None:
    message = request_message("server/discover")
    async with httpx2.AsyncClient(base_url=proxy, timeout=30) as http:
        for changed, status in (
            ({"host": "rebound.example"}, 421),
            ({"origin": "https://foreign.example"}, 403),
            ({"origin": "http://localhost:3000"}, 200),
            # The proxy tells the scheme, whatever a client says.
            (
                {
                    "host": "192.0.2.7",
                    "origin": "https://192.0.2.7",
                    "x-forwarded-proto": "https",
                },
                403,
            ),
            ({"host": "192.0.2.7", "origin": "http://192.0.2.7"}, 200),
        ):
            sent = {**headers("server/discover"), **changed}
            answer = await http.post("/mcp", content=message, headers=sent)
            assert answer.status_code == status


def headers(method: str) -> dict[str, str]:
    return {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
    }


def request_message(method: str) -> bytes:
    import json

    meta: JSON = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}}
    return json.dumps(message).encode()
