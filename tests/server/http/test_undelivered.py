"""The notice of a loss, when the answer that carries it does not reach its client: the next result carries it again."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from mcp import Client
from mcp.types import CallToolResult
from support.gateway_process import (
    JSON,
    Running,
    Way,
    count,
    meta_of,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.selection import matrix
from support.waiting import until, until_blocking
from test_departures import ACCEPT, META, message, request

NOTICE = "statehold/notice"


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"asking": service("asking")}}


@pytest.fixture
async def served(
    server: Running, config_file: Path, tmp_path: Path
) -> AsyncGenerator[tuple[Running, Client]]:
    way = Way("http", "modern", config_file, tmp_path, url=server.url)
    async with way.connect() as client:
        yield server, client


async def lost_session(client: Client) -> str:
    """Return a session whose counter is lost and opened again, which no result has reported yet."""
    session = await opened_session(client)
    assert await count(client, session) == 1
    await client.call_tool("crash", {"session_id": session})
    return session


def vanish(running: Running, data: bytes) -> None:
    """Send a request and reset the connection while the server is stopped, so that it cannot answer in between."""
    host, _, port = running.url.removeprefix("http://").rpartition(":")
    with (
        stopped(running.process.pid),
        socket.create_connection((host, int(port)), timeout=20) as sock,
    ):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(data)


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """Stop a process by a signal within the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid}/stat")
        until_blocking(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def ran(client: Client, session: str, calls: int) -> None:
    """Wait until the journal has that many results of inc."""
    arguments = {"session_id": session, "last": 100, "status": ["ok"]}

    async def has_results() -> bool:
        entries = structured(await client.call_tool("session_history", arguments))["entries"]
        return sum(entry.get("tool") == "inc" for entry in entries) >= calls

    await until(has_results)


async def opened_again(client: Client, session: str) -> None:
    """Wait until the second connection of a session is open."""

    async def is_open() -> bool:
        info = structured(await client.call_tool("session_info", {"session_id": session}))
        return info["generation"] == 2

    await until(is_open)


async def noticed(client: Client, session: str, **meta: Any) -> CallToolResult:
    """Call inc until a result has a notice. The answer that lost it may not have put it back by the first call."""

    async def call() -> CallToolResult | None:
        result = await client.call_tool("inc", {"session_id": session}, meta=cast("Any", meta))
        return result if NOTICE in meta_of(result) else None

    result = await until(call)
    assert result is not None
    return result


def inc(session: str, **meta: Any) -> JSON:
    return {"name": "inc", "arguments": {"session_id": session}, "_meta": {**META, **meta}}


MODERN = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "inc",
}


async def legacy(running: Running, version: str) -> dict[str, str]:
    """Open a transport session and return the headers of its requests."""
    hello: JSON = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    async with httpx2.AsyncClient(base_url=running.url, headers=ACCEPT, timeout=60) as raw:
        opened = await raw.post("/mcp", json=message("initialize", hello))
        headers = {
            "mcp-session-id": opened.headers["mcp-session-id"],
            "mcp-protocol-version": version,
        }
        initialized = message("notifications/initialized", {}, None)
        await raw.post("/mcp", json=initialized, headers=headers)
        # By its answer the notification has been handled.
        await raw.post("/mcp", json=message("tools/list", {}), headers=headers)
    return headers


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", matrix("2026-07-28", "2025-06-18", "2025-11-25"))
async def test_the_next_result_has_the_note_of_an_answer_that_was_not_delivered(
    served: tuple[Running, Client], version: str
) -> None:
    running, client = served
    session = await lost_session(client)
    headers = MODERN if version == "2026-07-28" else await legacy(running, version)
    if version == "2026-07-28":
        # Such a client cancels its call, so one opens the connection, and another one gets the result.
        vanish(running, request("POST", headers, message("tools/call", inc(session))))
        await opened_again(client, session)
    vanish(running, request("POST", headers, message("tools/call", inc(session))))
    await ran(client, session, 2)
    result = await noticed(client, session)
    assert "generation 1 to 2" in meta_of(result)[NOTICE]
    again = await client.call_tool("inc", {"session_id": session})
    assert NOTICE not in meta_of(again)


@pytest.mark.thorough
@pytest.mark.timeout(60)
async def test_a_repeat_has_the_note_of_an_answer_that_was_not_delivered(
    served: tuple[Running, Client],
) -> None:
    running, client = served
    session = await lost_session(client)
    meta = {"statehold/operation_id": "one"}
    body = message("tools/call", inc(session, **meta))
    vanish(running, request("POST", await legacy(running, "2025-06-18"), body))
    await ran(client, session, 2)
    repeat = await noticed(client, session, **meta)
    assert structured(repeat)["count"] == 1
    assert "generation 1 to 2" in meta_of(repeat)[NOTICE]
    following = await client.call_tool("inc", {"session_id": session})
    assert structured(following)["count"] == 2
    assert NOTICE not in meta_of(following)


@pytest.mark.thorough
@pytest.mark.timeout(60)
async def test_the_next_result_has_the_note_of_an_undelivered_forwarded_answer(
    tmp_path: Path,
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"asking": service("asking")}}))
    with serving(config, data) as owner, serving(config, data) as other:
        async with Way("http", "modern", config, tmp_path, url=owner.url).connect() as client:
            session = await lost_session(client)
            headers = await legacy(other, "2025-06-18")
            vanish(other, request("POST", headers, message("tools/call", inc(session))))
            await ran(client, session, 2)
            await noticed(client, session)
            again = await client.call_tool("inc", {"session_id": session})
            assert NOTICE not in meta_of(again)
