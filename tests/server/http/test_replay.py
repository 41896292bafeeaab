"""Transport sessions of 2025 clients: a share for each principal, and events to take up a lost stream with."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse
from support.gateway_process import JSON, Running, service, serving, toml
from support.selection import matrix
from support.token_file import write_tokens

from statehold.server.config.ports import HttpSettings
from statehold.server.sdk.replay import Replay, SessionEvents

WAYS: list[tuple[str, str]] = []
ALICE, BEN, CID = "alice-token-0123456789", "ben-token-0123456789abc", "cid-token-0123456789abc"
ACCEPT = {"accept": "application/json, text/event-stream"}
VERSION = {"mcp-protocol-version": "2025-11-25"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server with few transport sessions."""
    folder = tmp_path_factory.mktemp("small")
    tokens, config = folder / "tokens", folder / "statehold.toml"
    write_tokens(tokens, f"{ALICE} alice\n{BEN} ben\n{CID} cid\n")
    settings = {
        "server": {"tokens": str(tokens)},
        "http": {"transport_sessions": 5, "transport_sessions_per_principal": 4},
        "services": {"asking": service("asking")},
    }
    config.write_text(toml(settings))
    with serving(config, Path(folder / "data")) as running:
        yield running


def message(method: str, params: JSON, number: int | None = 1) -> JSON:
    body: JSON = {"jsonrpc": "2.0", "method": method, "params": params}
    return body if number is None else {**body, "id": number}


@asynccontextmanager
async def connected(server: Running, token: str) -> AsyncGenerator[httpx2.AsyncClient]:
    headers = {**ACCEPT, "authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=20) as raw:
        yield raw


async def initialize(raw: httpx2.AsyncClient) -> httpx2.Response:
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    return await raw.post("/mcp", json=message("initialize", hello))


async def opened(raw: httpx2.AsyncClient) -> dict[str, str]:
    """Open a transport session and return its headers."""
    answer = await initialize(raw)
    assert answer.status_code == 200, answer.text
    headers = {**VERSION, "mcp-session-id": answer.headers["mcp-session-id"]}
    initialized = message("notifications/initialized", {}, None)
    assert (await raw.post("/mcp", json=initialized, headers=headers)).status_code == 202
    return headers


async def answers(raw: httpx2.AsyncClient, headers: dict[str, str]) -> bool:
    return (await raw.post("/mcp", json=message("ping", {}), headers=headers)).status_code == 200


async def test_the_longest_idle_session_of_a_principal_makes_room(small: Running) -> None:
    async with connected(small, ALICE) as alice, connected(small, BEN) as ben:
        hers = [await opened(alice) for _ in range(4)]
        his = await opened(ben)
        assert await answers(alice, hers[0])
        hers.append(await opened(alice))
        assert [await answers(alice, one) for one in hers] == [True, False, True, True, True]
        # The total is reached: alice has the most.
        async with connected(small, CID) as cid:
            assert await answers(cid, await opened(cid))
        assert await answers(ben, his)
        assert [await answers(alice, one) for one in hers].count(True) == 3


async def test_sessions_in_use_do_not_make_room_and_leave_room_for_others(small: Running) -> None:
    async with connected(small, ALICE) as alice, AsyncExitStack() as stack:
        for _ in range(4):
            headers = await opened(alice)
            stream = await stack.enter_async_context(alice.stream("GET", "/mcp", headers=headers))
            assert stream.status_code == 200
        assert (await initialize(alice)).status_code == 503
        async with connected(small, BEN) as ben:
            assert await answers(ben, await opened(ben))


def events(text: str) -> list[dict[str, str]]:
    blocks = text.replace("\r\n", "\n").split("\n\n")
    lines = [
        [line.split(": ", 1) for line in block.splitlines() if ": " in line] for block in blocks
    ]
    return [{pair[0]: pair[1] for pair in block if pair[0]} for block in lines if block]


@pytest.mark.parametrize("during", matrix(True, False))
async def test_a_lost_stream_is_taken_up_with_the_id_of_its_first_event(
    small: Running, during: bool
) -> None:
    async with connected(small, CID) as raw:
        headers = await opened(raw)
        created = await raw.post(
            "/mcp",
            json=message("tools/call", {"name": "session_create", "arguments": {}}),
            headers=headers,
        )
        data = json.loads(
            created.text if created.text[0] == "{" else events(created.text)[-1]["data"]
        )
        session = data["result"]["structuredContent"]["session_id"]
        slow = {"name": "slow", "arguments": {"session_id": session, "seconds": 0.7}}
        request = message("tools/call", slow, 7)
        async with raw.stream("POST", "/mcp", json=request, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            (first,) = events(await anext(stream.aiter_text()))
        assert first["retry"]
        if not during:
            other = message("tools/call", {**slow, "arguments": {"session_id": session}}, 8)
            await raw.post("/mcp", json=other, headers=headers)
        again = {**headers, "last-event-id": first["id"]}
        with anyio.fail_after(20):
            async with raw.stream("GET", "/mcp", headers=again) as stream:
                assert stream.status_code == 200
                text = ""
                async for piece in stream.aiter_text():
                    text += piece
                    if '"id":7' in text.replace(" ", ""):
                        break
        answer = next(
            json.loads(e["data"]) for e in events(text) if '"result"' in e.get("data", "")
        )
        assert answer["id"] == 7


async def test_an_unknown_event_is_no_fault(small: Running) -> None:
    async with connected(small, CID) as raw:
        headers = {**await opened(raw), "last-event-id": "nothing"}
        async with raw.stream("GET", "/mcp", headers=headers) as stream:
            assert stream.status_code == 200


def note(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": text})


async def replayed(events: SessionEvents, after: str) -> tuple[list[str], str | None]:
    ids: list[str] = []

    async def send(event: EventMessage) -> None:
        assert event.event_id is not None
        ids.append(event.event_id)

    return ids, await events.replay_events_after(after, send)


async def test_events_are_bounded_for_a_session_an_owner_and_in_total() -> None:
    replay = Replay(HttpSettings(replay_events=3, replay_bytes=1000, replay_bytes_total=1500))
    first, second, other = (replay.open(owner) for owner in ("a", "a", "b"))
    assert first is not None
    assert second is not None
    assert other is not None
    ids = [await first.store_event("1", note("")) for _ in range(5)]
    assert (await replayed(first, ids[2]))[0] == ids[3:]
    assert await replayed(first, ids[0]) == ([], GET_STREAM_KEY)
    assert await replayed(second, ids[3]) == ([], GET_STREAM_KEY)
    await other.store_event("1", note("x" * 300))
    for _ in range(3):
        await second.store_event("1", note("x" * 300))
    assert first.bytes + second.bytes <= 1000
    assert other.bytes > 300
    replay.close(first)
    replay.close(second)
    assert (first.bytes, second.bytes) == (0, 0)


async def test_only_the_stream_of_an_event_is_replayed_and_ends_with_its_answer() -> None:
    events = Replay(HttpSettings()).open("a")
    assert events is not None
    first = await events.store_event("1", None)
    await events.store_event("2", note(""))
    third = await events.store_event("1", note(""))
    assert await replayed(events, first) == ([third], "1")
    answer = await events.store_event("1", JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    assert await replayed(events, first) == ([third, answer], None)
