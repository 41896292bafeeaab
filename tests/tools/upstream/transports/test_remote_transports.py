"""Connections to remote upstreams: lost sessions, refused messages, limits of sizes, and addresses without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio
import httpx2
import psutil
import pytest
from callers import UPSTREAMS, Caller, text_of, view
from support.fork_server import ForkServer
from support.runs import entries
from support.selection import matrix
from support.tcp_relay import relay
from support.waiting import until

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.errors import UpstreamMisbehaved, UpstreamRefused
from statehold.tools.upstream.service import UpstreamService
from statehold.tools.upstream.transports.http_errors import HttpRefused

Era = Literal["legacy", "modern"]


@pytest.fixture(params=matrix("legacy", "modern"))
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


async def test_the_http_session_that_a_server_forgot_is_lost(
    counter_server: Callable[..., str],
) -> None:
    url = counter_server("http")
    connection = await UpstreamService("counter", UpstreamConfig(url=url)).open(view(), None)
    session_ids: list[str] = []

    async def note(request: httpx2.Request) -> None:
        session_ids.append(request.headers["mcp-session-id"])

    try:
        client: httpx2.AsyncClient = connection.rpc._transport._client  # pyright: ignore
        client.event_hooks = {"request": [note]}
        await connection.call("inc", {}, Caller())
        async with httpx2.AsyncClient(timeout=60) as other:
            await other.delete(url, headers={"mcp-session-id": session_ids[-1]})
        with pytest.raises(ConnectionLost):
            await connection.call("get", {}, Caller())
        with anyio.fail_after(5):
            await connection.lost.wait()
        assert connection.reason == "the server no longer knows this session"
    finally:
        await connection.aclose()


@pytest.mark.thorough
async def test_a_call_in_flight_has_no_known_outcome_when_another_finds_the_session_forgotten(
    counter_server: Callable[..., str], tmp_path: Path
) -> None:
    """The server has received it, so it may not be sent again. More calls than TCP connections that can be reused."""
    log = tmp_path / "calls.jsonl"
    with relay() as upstream:
        upstream.target = port_of(counter_server("http", "--log", str(log)))
        config = UpstreamConfig(url=f"http://127.0.0.1:{upstream.port}/mcp", era="legacy")
        connection = await UpstreamService("counter", config).open(view(), None)
        raised: list[Exception] = []

        async def call_slow() -> None:
            try:
                await connection.call("slow", {"seconds": 60}, Caller())
            except (ConnectionLost, OutcomeUnknown) as error:
                raised.append(error)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(call_slow)
                await until(lambda: len(entries(log)) == 8)
                upstream.target = port_of(counter_server("http"))
                with anyio.fail_after(10), pytest.raises(ConnectionLost):
                    await connection.call("inc", {}, Caller())
        finally:
            await connection.aclose()
    assert [type(error) for error in raised] == [OutcomeUnknown] * 8


async def test_a_session_that_was_left_is_resumed_with_the_lists_it_has_now(
    counter_server: Callable[..., str],
) -> None:
    """Its id goes from one process to the next in the resume token."""
    config = UpstreamConfig(url=counter_server("http", "--era", "legacy"))
    connection = await UpstreamService("counter", config).open(view(), None)
    assert connection.resumption is not None
    token = connection.resumption.token
    assert token is not None
    await connection.call("inc", {}, Caller())
    connection.resumption.leave()
    await connection.aclose()

    changes: list[str] = []

    def record_change(_service: object, method: str, _connection: object, _params: object) -> None:
        changes.append(method)

    service = UpstreamService("counter", config, on_changed=record_change)
    resumed = await service.resume(view(), token, None)
    try:
        assert text_of(await resumed.call("inc", {}, Caller())) == "2"
        assert resumed.peer == connection.peer
        assert resumed.resumption is not None
        assert resumed.resumption.token == token
        assert changes == [
            f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
        ]
    finally:
        await resumed.aclose()
    with pytest.raises(ConnectionLost, match="the server no longer knows this session"):
        await service.resume(view(), token, None)


@pytest.mark.thorough
async def test_calls_over_http_share_their_tcp_connections(
    counter_server: Callable[..., str], era: Era
) -> None:
    url = counter_server("http")
    port = port_of(url)
    service = UpstreamService("counter", UpstreamConfig(url=url, era=era))
    connection = await service.open(view(), None)
    ports: set[int] = set()
    try:
        for _ in range(10):
            await connection.call("inc", {}, Caller())
            ports |= {
                endpoint.laddr.port
                for endpoint in psutil.Process().net_connections("tcp")
                if endpoint.raddr and endpoint.raddr.port == port
            }
    finally:
        await connection.aclose()
    assert len(ports) <= 3


async def test_a_message_that_an_sse_server_refuses_costs_its_own_call(
    counter_server: Callable[..., str], era: Era
) -> None:
    config = UpstreamConfig(url=counter_server("sse"), era=era)
    connection = await UpstreamService("counter", config).open(view(), None)
    try:
        with anyio.fail_after(10), pytest.raises(HttpRefused) as raised:
            await connection.call("echo", {"x": "y" * 5 * 2**20}, Caller())
        assert "HTTP 413" in raised.value.message
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
    finally:
        await connection.aclose()


async def test_an_answer_that_is_too_long_over_http_costs_its_own_call(
    counter_server: Callable[..., str], era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.tools.upstream.transports.http.RESULT_BYTES", 2**20)
    config = UpstreamConfig(url=counter_server("http"), era=era)
    connection = await UpstreamService("counter", config).open(view(), None)
    try:
        with anyio.fail_after(10), pytest.raises((UpstreamRefused, UpstreamMisbehaved)):
            await connection.call("big", {"kib": 2048}, Caller())
        assert text_of(await connection.call("inc", {}, Caller())) == "1"
    finally:
        await connection.aclose()


async def test_an_answer_that_is_too_long_over_sse_ends_the_connection(
    counter_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.tools.upstream.transports.sse.RESULT_BYTES", 2**20)
    config = UpstreamConfig(url=counter_server("sse"))
    connection = await UpstreamService("counter", config).open(view(), None)
    try:
        with anyio.fail_after(10), pytest.raises(OutcomeUnknown):
            await connection.call("big", {"kib": 2048}, Caller())
        assert "exceeded the 1048576 byte limit" in str(connection.reason)
    finally:
        await connection.aclose()


async def test_a_request_that_did_not_get_through_is_known_not_to_have_run(
    fork_server: ForkServer,
) -> None:
    program = (str(UPSTREAMS / "counter.py"), "--transport", "http", "--port", "0")
    process = fork_server.start(*program, piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        port = json.loads(process.stdout.readline())["port"]
        config = UpstreamConfig(url=f"http://127.0.0.1:{port}/mcp", era="modern")
        connection = await UpstreamService("counter", config).open(view(), None)
        try:
            process.kill()
            process.wait(10)
            with pytest.raises(ConnectionLost):
                await connection.call("inc", {}, Caller())
            with anyio.fail_after(5):
                await connection.lost.wait()
        finally:
            process.kill()
            await connection.aclose()


async def test_headers_reach_an_http_upstream_and_errors_do_not_show_them(
    counter_server: Callable[..., str],
) -> None:
    url = counter_server("http")
    config = UpstreamConfig(url=url.replace("/mcp", "/nowhere?key=hush-hush"))
    config.headers["Authorization"] = "Bearer secret-token"
    with pytest.raises(ServiceUnavailable) as unavailable:
        await UpstreamService("counter", config).open(view(), None)
    assert "404" in unavailable.value.message
    assert "secret-token" not in unavailable.value.message


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_a_server_that_is_not_there_is_unavailable(path: str) -> None:
    service = UpstreamService("gone", UpstreamConfig(url=f"http://127.0.0.1:9/{path}"))
    with pytest.raises(ServiceUnavailable) as unavailable:
        await service.open(view(), None)
    assert "gone could not be opened" in unavailable.value.message


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_an_address_that_nothing_listens_on_is_named(path: str) -> None:
    transport = "sse" if path == "sse" else "http"
    config = UpstreamConfig(url=f"http://127.0.0.1:9/{path}", type=transport)
    with pytest.raises(ServiceUnavailable) as raised:
        await UpstreamService("gone", config).open(view(), None)
    assert "nothing listens at http://127.0.0.1:9; start that server" in raised.value.message
