"""Changed lists of 2026-07-28 upstreams, which notify only clients that listen."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from callers import NOTHING, UPSTREAMS, Caller, Serving, text_of, view
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND
from support.fork_server import ForkServer
from support.selection import matrix
from support.waiting import until

from statehold.tools.upstream import change_stream as subject
from statehold.tools.upstream.change_stream import Listener, list_change_filter
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.connection import UpstreamConnection
from statehold.tools.upstream.negotiation import Peer
from statehold.tools.upstream.service import UpstreamService

TOOLS = "notifications/tools/list_changed"
ACK: dict[str, Any] = {"notifications": {"toolsListChanged": True}}


class ChangeRecorder:
    """The notifications that a service got from its connections."""

    def __init__(self, service: UpstreamService) -> None:
        self.methods: list[str] = []
        self.connections: list[UpstreamConnection] = []
        self._more = anyio.Event()
        service.on_changed = self._record

    def _record(self, _: object, method: str, connection: UpstreamConnection, *__: object) -> None:
        self.methods.append(method)
        self.connections.append(connection)
        self._more.set()

    async def of(self, method: str) -> UpstreamConnection:
        """Wait for the next of a kind, and forget it."""
        with anyio.fail_after(10):
            while method not in self.methods:
                await self._more.wait()
                self._more = anyio.Event()
        connections = self.methods.index(method)
        del self.methods[connections]
        return self.connections.pop(connections)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(subject, "PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture(params=matrix("stdio", "http", "sse"))
def counter(
    request: pytest.FixtureRequest,
    serving: Serving,
    fork_server: ForkServer,
    counter_server: Callable[..., str],
) -> UpstreamService:
    if request.param == "stdio":
        program = fork_server.service(UPSTREAMS / "counter.py", "--era", "modern")
        return serving("counter", **program, era="modern")
    url = counter_server(request.param, "--era", "modern")
    return UpstreamService("counter", UpstreamConfig(url=url, era="modern"))


@asynccontextmanager
async def open_connection(
    service: UpstreamService, name: str = "one"
) -> AsyncGenerator[UpstreamConnection]:
    connection = await service.open(view(name), None)
    try:
        yield connection
    finally:
        await connection.aclose()


@contextmanager
def running(fork_server: ForkServer, port: int) -> Generator[int]:
    """Run the counting server on a port, and kill it at the end."""
    command = (str(UPSTREAMS / "counter.py"), "--transport", "http", "--era", "modern")
    process = fork_server.start(*command, "--port", str(port), piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            yield json.loads(process.stdout.readline())["port"]
        finally:
            process.kill()
            process.wait(10)


async def test_a_modern_upstream_is_heard(counter: UpstreamService) -> None:
    recorder = ChangeRecorder(counter)
    async with open_connection(counter) as connection:
        for kind in ("tools", "prompts", "resources"):
            await connection.call("grow", {"what": kind}, Caller())
            assert await recorder.of(f"notifications/{kind}/list_changed") is connection


async def test_a_subscription_that_ended_and_began_again_brings_a_change_once(
    counter: UpstreamService,
) -> None:
    recorder, params = ChangeRecorder(counter), {"uri": "counter://value"}
    async with open_connection(counter) as connection:
        for verb in ("subscribe", "unsubscribe", "subscribe"):
            await connection.request(f"resources/{verb}", params, Caller())
        for kind in ("value", "tools"):
            await connection.call("grow", {"what": kind}, Caller())
        await recorder.of("notifications/resources/updated")
        await recorder.of(TOOLS)
        assert recorder.methods == []


async def test_listening_ends_with_the_connection(counter: UpstreamService, leaks: Any) -> None:
    recorder = ChangeRecorder(counter)
    for number in range(3):
        async with open_connection(counter) as connection:
            await connection.call("grow", {}, Caller())
            await recorder.of(TOOLS)
        if not number:
            # The watchdog of child processes stays.
            leaks = leaks.baseline()
    await leaks.check()


@pytest.mark.thorough
async def test_a_change_that_meets_the_end_of_its_connection_is_no_fault(
    counter_server: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    url = counter_server("http", "--era", "modern")
    config = UpstreamConfig(url=url, era="modern")
    service, other = UpstreamService("counter", config), UpstreamService("other", config)
    async with open_connection(other, "other") as busy:
        for number in range(15):
            async with open_connection(service) as connection, anyio.create_task_group() as tasks:
                await connection.call("get", {}, Caller())
                for _ in range(3):
                    tasks.start_soon(busy.call, "grow", NOTHING, Caller())
                # The delay grows each time, because the race is within a millisecond.
                for _ in range(40 * number):
                    await anyio.lowlevel.checkpoint()
                await connection.aclose()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_stream_that_ends_is_opened_again_and_what_was_missed_is_looked_for(
    counter: UpstreamService, soon: None
) -> None:
    recorder = ChangeRecorder(counter)
    async with open_connection(counter) as connection:
        await connection.call("grow", {}, Caller())
        await recorder.of(TOOLS)
        recorder.methods.clear()
        await connection.call("hang_up", {}, Caller())
        await recorder.of(TOOLS)
        await recorder.of("notifications/prompts/list_changed")
        assert text_of(await connection.call("get", {}, Caller())) == "0"
        assert not connection.lost.is_set()


async def test_one_of_several_sessions_listens_to_a_server_and_another_follows(
    counter_server: Callable[..., str], soon: None
) -> None:
    url = counter_server("http", "--era", "modern")
    service = UpstreamService("counter", UpstreamConfig(url=url, era="modern"))
    recorder = ChangeRecorder(service)
    async with open_connection(service, "one") as one:
        await one.call("grow", {}, Caller())
        assert await recorder.of(TOOLS) is one
        recorder.methods.clear()
        recorder.connections.clear()
        async with open_connection(service, "two") as two:
            await two.call("grow", {}, Caller())
            assert await recorder.of(TOOLS) is one
            assert recorder.methods == []
            await one.aclose()
            # It was called before it began to listen, so it has a look by itself.
            assert await recorder.of(TOOLS) is two
            await two.call("grow", {}, Caller())
            assert await recorder.of(TOOLS) is two


async def test_sessions_that_a_server_can_tell_apart_listen_each(
    counter_server: Callable[..., str],
) -> None:
    url = counter_server("http", "--era", "modern")
    headers = {"x-who": "{session_id}"}
    config = UpstreamConfig(url=url, era="modern", headers=headers)
    service = UpstreamService("counter", config)
    recorder = ChangeRecorder(service)
    async with open_connection(service, "one") as one, open_connection(service, "two") as two:
        await two.call("grow", {}, Caller())
        connections = {await recorder.of(TOOLS)}
        while connections != {one, two}:
            connections.add(await recorder.of(TOOLS))


async def test_a_server_that_is_gone_for_a_while_costs_no_connection(
    fork_server: ForkServer, caplog: pytest.LogCaptureFixture, soon: None
) -> None:
    caplog.set_level(logging.DEBUG, "statehold.upstream")
    with running(fork_server, 0) as port:
        config = UpstreamConfig(url=f"http://127.0.0.1:{port}/mcp", era="modern")
        service = UpstreamService("counter", config)
        recorder = ChangeRecorder(service)
        connection = await service.open(view(), None)
        await connection.call("grow", {}, Caller())
        await recorder.of(TOOLS)
    try:
        tried = "the subscription to list changes of counter ended and will be renewed"
        await until(lambda: caplog.text.count(tried) > 5)
        recorder.methods.clear()
        with running(fork_server, port):
            assert not connection.lost.is_set()
            assert text_of(await connection.call("get", {}, Caller())) == "0"
            assert await recorder.of(TOOLS) is connection
    finally:
        await connection.aclose()


async def test_an_upstream_without_subscriptions_costs_one_line_at_debug_level(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "statehold.upstream")
    async with open_connection(serving("asking", era="modern")) as connection:
        assert connection.peer.capabilities["tools"] == {"listChanged": True}
        for _ in range(3):
            await connection.call("get", {}, Caller())
        # The refusal of the subscription may arrive after the answers.
        await until(lambda: any("changes" in r.msg for r in caplog.records))
    records = [r for r in caplog.records if r.name == "statehold.upstream" and "changes" in r.msg]
    assert [(r.levelname, r.getMessage()) for r in records] == [
        ("DEBUG", "the subscription to list changes of asking ended: Method not found")
    ]


# By itself.


def peer(modern: bool = True, **capabilities: Any) -> Peer:
    return Peer("2026-07-28" if modern else "2025-11-25", modern, capabilities=capabilities)


def test_only_what_a_modern_peer_declares_is_asked_for() -> None:
    capabilities: Any = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": False},
        "resources": {},
    }
    assert list_change_filter(peer(**capabilities)) == {"toolsListChanged": True}
    assert list_change_filter(peer(tools={"listChanged": True}, prompts={"listChanged": True})) == {
        "toolsListChanged": True,
        "promptsListChanged": True,
    }
    assert list_change_filter(peer(tools=[], prompts="yes", resources=None)) == NOTHING
    assert list_change_filter(peer(modern=False, **capabilities)) == NOTHING


@pytest.mark.parametrize(
    ("outcome", "tries"),
    [
        (MCPError(METHOD_NOT_FOUND, "Method not found"), 1),
        (MCPError(-32021, "a capability is missing"), 1),
        (MCPError(INTERNAL_ERROR, "Subscription limit reached"), 20),
        (MCPError(CONNECTION_CLOSED, "SSE stream ended without a response"), 20),
        (RuntimeError("a fault of ours"), 1),
        (None, 20),
    ],
)
async def test_listening_is_given_up_only_when_it_is_refused(
    soon: None, outcome: Exception | None, tries: int
) -> None:
    sent: list[Any] = []

    async def send(filters: Any) -> None:
        sent.append(filters)
        if len(sent) == 20:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        if outcome is not None:
            raise outcome

    changes: list[str] = []
    listener = Listener("one", {"toolsListChanged": True}, send, changes.append)
    with anyio.fail_after(5):
        await listener.run()
    assert sent == [{"toolsListChanged": True}] * tries
    assert changes == []


async def test_a_stream_that_lasted_is_no_failure(
    soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "LASTING_SECONDS", 0.0)
    sent = 0
    changes: list[str] = []

    async def send(filters: Any) -> None:
        nonlocal sent
        sent += 1
        if sent > 20:
            raise MCPError(METHOD_NOT_FOUND, "enough")
        listener.handle_acknowledgement(ACK, late=False)

    listener = Listener("one", {"toolsListChanged": True}, send, changes.append)
    with anyio.fail_after(5):
        await listener.run()
    assert sent == 21
    # Each time but the first there is something to catch up with.
    assert changes == [TOOLS] * 19
    listener.handle_acknowledgement({"notifications": "nonsense"}, late=True)
    assert changes == [TOOLS] * 19
