"""HTTP as bytes on a socket: event streams, and addresses without a Statehold."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec

import anyio
import pytest
from support.selection import matrix

from statehold.client import connect
from statehold.client.errors import (
    ServerUnreachable,
)
from statehold.client.transport.http import HttpTransport


async def test_a_stream_is_read_as_bytes_come() -> None:
    text = "a\u2028b\x85c\x0cd\r\n"
    reports: list[float] = []
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": text}}, ensure_ascii=False)
    step = {"progressToken": 1, "progress": 1.5}
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": step})
    events = f": ping\r\n\r\nevent: message\r\ndata: {note}\r\n\r\ndata: {answer}\n\n".encode()

    async def serve(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        await read.readuntil(b"\r\n\r\n")
        write.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for byte in events:
            write.write(bytes([byte]))
            await write.drain()
        write.close()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        reports.append(done)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        channel = HttpTransport(f"http://127.0.0.1:{port}/mcp", {})
        with anyio.fail_after(10):
            result = await channel.request("x", {"_meta": {}}, progress_callback=progress)
        await channel.aclose()
    assert (result, reports) == ({"text": text}, [1.5])


@pytest.mark.parametrize(("options", "most"), [({}, 64), ({"max_connections": 3}, 3)])
async def test_requests_beyond_the_bound_wait_for_a_connection(
    options: dict[str, int], most: int
) -> None:
    """All connections are in use before the first request is answered."""
    in_use = peak = 0
    params: dict[str, object] = {"_meta": {}}
    full, answered = asyncio.Event(), asyncio.Event()

    async def serve(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        nonlocal in_use, peak
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await read.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r")[0])
                number = json.loads(await read.readexactly(size))["id"]
                in_use += 1
                peak = max(peak, in_use)
                if in_use == most:
                    full.set()
                await answered.wait()
                answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}).encode()
                in_use -= 1
                write.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )
        write.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        channel = HttpTransport(f"http://127.0.0.1:{port}/mcp", {}, **options)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(most + 10):
                    tasks.start_soon(channel.request, "x", params)
                await full.wait()
                await anyio.wait_all_tasks_blocked()
                answered.set()
        await channel.aclose()
    assert peak == most


def test_a_bound_of_connections_is_of_a_client_over_http() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        connect("http://127.0.0.1:1", max_connections=0)
    with pytest.raises(TypeError, match="max_connections needs url"):
        connect(stdio=["statehold"], max_connections=1)


async def test_an_address_without_a_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with anyio.fail_after(10):
        with pytest.raises(ServerUnreachable) as caught:
            async with connect(f"http://127.0.0.1:{port}", retry_seconds=0.1):
                pass
    assert caught.value.retryable


async def test_another_server_is_refused(counter_server: Callable[..., str]) -> None:
    url = counter_server("http")
    with pytest.raises(ServerUnreachable, match="no Statehold"):
        async with connect(url):
            pass


@pytest.mark.parametrize("host", matrix("127.0.0.1", "localhost", "[::1]", "127.9.9.9"))
async def test_proxies_of_the_environment_are_not_asked_about_this_machine(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    url = f"http://{host}:9/mcp"
    with pytest.raises(ServerUnreachable) as caught:
        async with connect(url, retry_seconds=0):
            pass
    assert url in caught.value.message
    assert "proxy" not in caught.value.message


async def test_an_error_names_the_address_and_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ServerUnreachable) as caught:
        async with connect("http://ada:secret@host.example/mcp", retry_seconds=0):
            pass
    assert "http://host.example/mcp, by the proxy of the environment" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.skipif(find_spec("socksio") is not None, reason="socksio is installed")
def test_a_proxy_that_needs_another_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ServerUnreachable, match=r"SOCKS proxy for host.example.*socksio"):
        connect("http://host.example/mcp")
