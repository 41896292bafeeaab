"""Requests over HTTP whose answer is torn, and streams that a balancer cuts: they cost themselves, never their session."""

from __future__ import annotations

import json
import socket
from typing import Any

import anyio
import pytest
from callers import Caller, view
from support.loop_clock import LoopClock
from support.odd_http import ENDS, JSON, TEARS, OddServer, Response, odd_server, page
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, SessionError
from statehold.tools.upstream import change_stream
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.connection import UpstreamConnection
from statehold.tools.upstream.service import UpstreamService
from statehold.tools.upstream.transports.http_errors import HttpRefused

REQUESTS: dict[str, JSON] = {
    "tools/list": {},
    "prompts/get": {"name": "review"},
    "resources/read": {"uri": "odd://one"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "review"}},
}


def service_at(url: str, **settings: Any) -> UpstreamService:
    return UpstreamService("odd", UpstreamConfig.model_validate({"url": url, **settings}))


async def count(connection: UpstreamConnection) -> int:
    result = await connection.call("inc", {}, Caller())
    return result.payload["structuredContent"]["count"]


def tearing(odd: OddServer, way: str, *methods: str) -> None:
    """Tear the next answer to each of the methods."""
    left = list(methods)

    def tear(message: JSON) -> str | None:
        if message.get("method") not in left:
            return None
        left.remove(message["method"])
        return way

    odd.tear = tear


@pytest.mark.parametrize("way", matrix(*TEARS))
@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_a_torn_answer_costs_its_own_call(way: str, era: Any) -> None:
    with odd_server(era=era) as odd:
        connection = await service_at(odd.url, era=era).open(view(), None)
        assert await count(connection) == 1
        tearing(odd, way, "tools/call")
        with anyio.fail_after(20), pytest.raises((OutcomeUnknown, HttpRefused)):
            await count(connection)
        assert not connection.lost.is_set()
        assert await count(connection) == 3
        assert odd.count_of("initialize") == (1 if era == "legacy" else 0)
        assert not [each for each in odd.requests if each[0] == "DELETE"]
        await connection.aclose()


@pytest.mark.parametrize(
    ("method", "way"),
    matrix(
        *((method, "reset") for method in REQUESTS),
        *(("tools/list", way) for way in ("end", "half", "nothing")),
    ),
)
async def test_a_torn_answer_to_another_request_costs_that_request(method: str, way: str) -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        assert await count(connection) == 1
        tearing(odd, way, method)
        with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
            await connection.request(method, REQUESTS[method], Caller())
        assert await count(connection) == 2
        await connection.aclose()


@pytest.mark.parametrize("way", matrix("nothing", "reset", "half"))
async def test_a_torn_answer_to_a_message_costs_an_sse_server_one_call(way: str) -> None:
    with odd_server(post_to_sse=405) as odd:
        connection = await service_at(f"{odd.origin}/sse").open(view(), None)
        assert await count(connection) == 1
        tearing(odd, way, "tools/call")
        with anyio.fail_after(20):
            try:
                assert await count(connection) == 2
            except OutcomeUnknown:
                assert way != "half"
        assert await count(connection) == 3
        assert not connection.lost.is_set()
        await connection.aclose()


@pytest.mark.thorough
async def test_a_torn_answer_and_a_torn_ping_cost_one_call() -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        tearing(odd, "nothing", "tools/call", "ping", "ping")
        with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
            await count(connection)
        assert await count(connection) == 2
        await connection.aclose()


@pytest.mark.thorough
async def test_many_calls_that_are_torn_at_once_ask_one_after_the_other_and_go_on() -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        tearing(odd, "reset", *["tools/call"] * 12)

        async def call() -> None:
            with pytest.raises(OutcomeUnknown):
                await count(connection)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(call)
        assert await count(connection) == 13
        await connection.aclose()


async def test_a_torn_answer_of_a_server_that_forgot_the_session_is_a_loss() -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        tearing(odd, "reset", "tools/call")
        odd.counts.clear()
        with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
            await count(connection)
        assert connection.lost.is_set()
        assert connection.reason == "the server no longer knows this session"
        await connection.aclose()


async def test_a_server_that_answers_no_ping_is_lost_and_its_session_is_left() -> None:
    """It may be cut off from us, and live."""
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.tear = lambda message: "nothing"
        with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
            await count(connection)
        assert connection.lost.is_set()
        assert odd.count_of("ping") == 4
        await connection.aclose()
        assert not [each for each in odd.requests if each[0] == "DELETE"]


async def test_a_proxy_that_starts_again_costs_no_session() -> None:
    """It refuses connections for a moment; the call did not run, and is said so."""
    with odd_server() as odd, socket.socket() as none:
        none.bind(("127.0.0.1", 0))
        connection = await service_at(odd.url).open(view(), None)
        assert await count(connection) == 1
        transport: Any = connection.rpc.transport
        sockets: Any = transport._client._transport
        send: Any = sockets.handle_async_request
        refused = 0

        async def refuse_twice(request: Any) -> Any:
            nonlocal refused
            refused += 1
            if refused <= 2:
                request.url = request.url.copy_with(port=none.getsockname()[1])
            return await send(request)

        sockets.handle_async_request = refuse_twice
        with anyio.fail_after(20), pytest.raises(ConnectionLost):
            await count(connection)
        assert not connection.lost.is_set()
        assert await count(connection) == 2
        await connection.aclose()


@pytest.mark.parametrize("body", matrix(b"null", b"", b"{}", b"[]", b'{"result": null}'))
async def test_a_server_that_answers_nothing_in_a_forgotten_session_is_lost(body: bytes) -> None:
    with odd_server() as odd:
        odd.forgotten = lambda message: Response(200, body)
        connection = await service_at(odd.url).open(view(), None)
        odd.counts.clear()
        with anyio.fail_after(60), pytest.raises(OutcomeUnknown):
            await count(connection)
        assert connection.lost.is_set()
        await connection.aclose()


@pytest.mark.parametrize("words", matrix("Session not found", "Not initialized"))
async def test_a_forgotten_session_that_is_told_as_a_tool_error_is_lost(words: str) -> None:
    def forgotten(message: JSON) -> Any:
        if message["method"] != "tools/call":
            return page(404)
        result = {"content": [{"type": "text", "text": words}], "isError": True}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return Response(200, json.dumps(answer).encode())

    with odd_server(forgotten=forgotten) as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.counts.clear()
        with anyio.fail_after(60):
            assert (await connection.call("inc", {}, Caller())).is_error
        assert connection.lost.is_set()
        await connection.aclose()


# The stream of the server's own messages.


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(change_stream, "PAUSES", (0.0,))


CHANGED = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'


@pytest.mark.parametrize("end", matrix(*ENDS, 503, 500, 404))
async def test_a_stream_that_is_cut_again_and_again_is_opened_again(
    end: str | int, soon: None
) -> None:
    changes: list[str] = []

    def record_change(_service: object, method: str, _connection: object, _params: object) -> None:
        changes.append(method)

    with odd_server() as odd:
        odd.listening = lambda number: "hold" if number in (1, 7) else end
        service = UpstreamService("odd", UpstreamConfig(url=odd.url), on_changed=record_change)
        connection = await service.open(view(), None)
        odd.pushed.put(CHANGED)
        odd.pushed.put(b"")
        odd.pushed.put(CHANGED)
        await until(lambda: len(changes) == 2)
        assert await count(connection) == 1
        await connection.aclose()


@pytest.mark.thorough
async def test_a_server_without_a_stream_of_its_own_is_asked_twice(soon: None) -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        await until(lambda: sum(each[0] == "GET" for each in odd.requests) == 2)
        assert await count(connection) == 1
        await connection.aclose()


async def test_the_pauses_before_a_stream_is_opened_again_grow_until_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later, waited = LoopClock(monkeypatch), list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(change_stream.anyio, "sleep", sleep)
    reopening = change_stream.Reopening()
    for _ in range(5):
        reopening.record_open()
        await reopening.pause()
    reopening.record_open()
    await later.by(60)
    await reopening.pause()
    await reopening.pause()
    assert waited == [1, 5, 30, 30, 30, 1, 5]


@pytest.mark.thorough
async def test_closing_does_not_wait_for_a_stream_that_is_to_be_opened() -> None:
    with odd_server() as odd:
        odd.listening = lambda number: 503
        connection = await service_at(odd.url).open(view(), None)
        await until(lambda: any(each[0] == "GET" for each in odd.requests))
        with anyio.fail_after(5):
            await connection.aclose()
        with pytest.raises(SessionError):
            await count(connection)
