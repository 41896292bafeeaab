"""HTTP servers that differ from the SDK's examples: redirects, sessions lost in any words, HTTP errors, other transports."""

from __future__ import annotations

import json
import threading
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from callers import Caller, text_of, view
from support.odd_http import JSON, Response, odd_server, page, rpc_error, tool
from support.selection import matrix

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.connection import UpstreamConnection
from statehold.tools.upstream.errors import UpstreamMisbehaved, UpstreamRefused
from statehold.tools.upstream.service import UpstreamService
from statehold.tools.upstream.transports.http_errors import HttpRefused


def service_at(url: str, data: Path | None = None, **settings: Any) -> UpstreamService:
    config = UpstreamConfig.model_validate({"url": url, **settings})
    return UpstreamService("odd", config, data=data)


async def count(connection: UpstreamConnection) -> int:
    result = await connection.call("inc", {}, Caller())
    return result.payload["structuredContent"]["count"]


def redirecting(status: int, location: str) -> Callable[[str, str], Response | None]:
    def redirect(_method: str, path: str) -> Response | None:
        return page(status, Location=location) if path == "/mcp" else None

    return redirect


# Redirects.


@pytest.mark.parametrize(
    ("era", "status", "form"),
    matrix(
        ("legacy", 307, "/mcp/"),
        ("modern", 307, "/mcp/"),
        ("legacy", 308, "/mcp/"),
        ("legacy", 307, "mcp/"),
        ("legacy", 307, "absolute"),
    ),
)
async def test_a_redirected_upstream_is_used(era: Any, status: int, form: str) -> None:
    with odd_server(era=era) as odd:
        odd.redirect = redirecting(status, odd.url if form == "absolute" else form)
        connection = await service_at(f"{odd.origin}/mcp").open(view(), None)
        assert [await count(connection), await count(connection)] == [1, 2]
        await connection.aclose()
    assert odd.count_of("tools/call") == 4
    if era == "legacy":
        assert [path for method, path, _ in odd.requests if method == "DELETE"] == ["/mcp", "/mcp/"]


@pytest.mark.thorough
async def test_an_upstream_that_redirects_in_mid_session_is_used() -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        assert await count(connection) == 1
        moved = {"/mcp/": "/mcp/?moved"}

        def redirect(_method: str, path: str) -> Response | None:
            return page(308, Location=moved[path]) if path in moved else None

        odd.redirect = redirect
        assert [await count(connection), await count(connection)] == [2, 3]
        await connection.aclose()


@pytest.mark.parametrize("status", matrix(307, 301, 302, 308))
async def test_a_redirect_that_is_not_followed_names_its_target(status: int) -> None:
    """Another origin would get our headers; 301 and 302 would turn the message into a GET."""
    with odd_server() as odd, odd_server() as other:
        target = f"{other.url}?token=hush-hush" if status in (307, 308) else "/mcp/"
        odd.redirect = redirecting(status, target)
        with pytest.raises(HttpRefused) as raised:
            await service_at(f"{odd.origin}/mcp").open(view(), None)
    assert f"redirects to {other.url if status in (307, 308) else odd.url}" in raised.value.message
    assert "set `url` of [services.odd]" in raised.value.message
    assert "hush-hush" not in raised.value.message
    assert not other.requests


@pytest.mark.thorough
async def test_a_redirect_of_an_sse_server_is_followed() -> None:
    with odd_server(post_to_sse=405) as odd:

        def redirect(_method: str, path: str) -> Response | None:
            if path == "/sse":
                return page(307, Location="/sse/")
            if path.startswith("/messages?") and "moved" not in path:
                return page(307, Location=f"{path}&moved=1")
            return None

        odd.redirect = redirect
        connection = await service_at(f"{odd.origin}/sse").open(view(), None)
        assert await count(connection) == 1
        # A message that is redirected elsewhere fails; it does not wait for ever.
        odd.redirect = lambda _method, path: page(302, Location="/login")
        with anyio.fail_after(20), pytest.raises(HttpRefused, match=r"redirects to .*/login"):
            await count(connection)
        await connection.aclose()


# Lost sessions.

LOSSES: dict[str, Callable[[JSON], Response]] = {
    "400": lambda message: rpc_error(400, -32000, "Bad Request: No valid session ID provided"),
    # The server runs the call and dies; the proxy before it answers the call and `ping` alike.
    "502": lambda message: page(502),
    "404": lambda message: page(404),
    "401": lambda message: page(401, WWW_Authenticate="Bearer"),
    "503": lambda message: page(503),
    "500": lambda message: rpc_error(500, -32603, "KeyError"),
    "403": lambda message: Response(403, b'{"detail": "unknown session"}'),
    "410": lambda message: Response(410, b"gone", "text/plain"),
    "302": lambda message: page(302, Location="/login"),
    "error": lambda message: rpc_error(200, -32001, "Session not found", message["id"]),
    "invalid": lambda message: rpc_error(200, -32602, "Invalid session", message["id"]),
    "page": lambda message: Response(200, b"<html>Log in</html>", "text/html"),
    "internal": lambda message: rpc_error(200, -32603, "Internal error", message["id"]),
    "no id": lambda message: rpc_error(200, -32000, "Bad Request: Session not found"),
}
AMBIGUOUS = {"502", "503", "500", "page", "internal"}
"""A server may answer so after it ran the call."""


@pytest.mark.parametrize("answer", matrix(*LOSSES, quick=2))
async def test_a_session_that_the_server_forgot_is_lost_whatever_it_answers(answer: str) -> None:
    with odd_server(forgotten=LOSSES[answer]) as odd:
        connection = await service_at(odd.url).open(view(), None)
        assert await count(connection) == 1
        odd.counts.clear()
        loss = OutcomeUnknown if answer in AMBIGUOUS else ConnectionLost
        with anyio.fail_after(60), pytest.raises(loss):
            await count(connection)
        assert connection.lost.is_set()
        assert connection.reason == "the server no longer knows this session"
        await connection.aclose()
        assert len(odd.counts) == 0, "the sessions of the check were ended"


@pytest.mark.thorough
@pytest.mark.parametrize("answer", ["404", "error", "400"])
async def test_a_lost_session_is_found_where_any_session_may_ping(answer: str) -> None:
    def forgotten(message: JSON) -> Response:
        if message["method"] == "ping":
            reply: JSON = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            return Response(200, json.dumps(reply).encode())
        return LOSSES[answer](message)

    with odd_server(forgotten=forgotten) as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.counts.clear()
        with anyio.fail_after(60), pytest.raises(ConnectionLost):
            await count(connection)
        await connection.aclose()


@pytest.mark.parametrize("status", matrix(404, 400, 503))
async def test_a_session_of_an_sse_server_that_forgot_it_is_lost(status: int) -> None:
    def forgotten(_: JSON) -> Response:
        return page(status)

    with odd_server(post_to_sse=405, forgotten=forgotten) as odd:
        connection = await service_at(f"{odd.origin}/sse").open(view(), None)
        assert await count(connection) == 1
        odd.streams.clear()
        loss = OutcomeUnknown if status == 503 else ConnectionLost
        with anyio.fail_after(60), pytest.raises(loss):
            await count(connection)
        assert connection.reason == "the server no longer knows this session"
        await connection.aclose()


@pytest.mark.parametrize("status", matrix(503, 404, 401))
async def test_a_server_that_is_down_for_a_moment_keeps_its_session(status: int) -> None:
    """A proxy before it answers everything meanwhile, new sessions too."""
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        assert await count(connection) == 1
        odd.refuse = lambda message: page(status)
        with anyio.fail_after(60), pytest.raises(HttpRefused) as raised:
            await count(connection)
        assert f"odd answered HTTP {status}" in raised.value.message
        assert "said" not in raised.value.message
        odd.refuse = lambda message: None
        assert await count(connection) == 2
        await connection.aclose()


async def test_a_refused_call_in_a_known_session_costs_nothing_else() -> None:
    def refuse(message: JSON) -> Response | None:
        if message.get("method") != "tools/call" or message["params"]["name"] != "bad":
            return None
        return rpc_error(400, -32602, "Unknown tool: bad", message["id"])

    with odd_server(refuse=refuse) as odd:
        connection = await service_at(odd.url).open(view(), None)
        with pytest.raises(UpstreamRefused, match="Unknown tool: bad"):
            await connection.call("bad", {}, Caller())
        assert await count(connection) == 1
        assert odd.count_of("initialize") == 1
        await connection.aclose()


@pytest.mark.thorough
async def test_a_server_that_never_answers_ping_keeps_its_session() -> None:
    def refuse(message: JSON) -> Response | None:
        if message.get("method") == "ping":
            return rpc_error(200, -32000, "Unknown request", message["id"])
        if message.get("method") == "tools/call" and message["params"]["name"] == "bad":
            return rpc_error(400, -32602, "Bad session value", message["id"])
        return None

    with odd_server(refuse=refuse) as odd:
        connection = await service_at(odd.url).open(view(), None)
        with pytest.raises(UpstreamRefused):
            await connection.call("bad", {}, Caller())
        assert await count(connection) == 1
        await connection.aclose()


# HTTP errors of calls.


def after(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("era", "status", "remedy", "recovery"),
    matrix(
        ("legacy", 401, "check the credentials in `headers` of [services.odd]", "Ask the operator"),
        ("legacy", 403, "start it with `--allowed-hosts 127.0.0.1:", "Ask the operator"),
        ("legacy", 403, "check the credentials in `headers` of [services.odd]", "Ask the operator"),
        ("legacy", 413, "the request is too large", "did not run: send less"),
        ("legacy", 429, "it wants fewer requests", "did not run: wait"),
        ("modern", 429, "it wants fewer requests", "did not run: wait"),
        ("legacy", 500, "answered HTTP 500 (Internal Server Error)", "may or may not have run"),
        ("legacy", 599, "answered HTTP 599.", "may or may not have run"),
    ),
)
async def test_an_http_error_of_a_call_names_status_service_and_remedy(
    era: Any, status: int, remedy: str, recovery: str
) -> None:
    with odd_server(era=era) as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = lambda message: page(status) if message.get("method") == "tools/call" else None
        with pytest.raises(ServiceUnavailable) as raised:
            await count(connection)
        assert f"odd answered HTTP {status}" in raised.value.message
        assert remedy in raised.value.message
        assert recovery in raised.value.recovery
        assert raised.value.code == "service_unavailable"
        odd.refuse = lambda message: None
        assert await count(connection) == 1
        await connection.aclose()


@pytest.mark.parametrize(
    ("status", "form"),
    matrix((429, "seconds"), (503, "seconds"), (429, "date"), (429, "both"), (429, "nonsense")),
)
async def test_the_time_to_wait_is_passed_on(status: int, form: str) -> None:
    headers = {
        "seconds": {"Retry-After": "17"},
        "date": {"Retry-After": after(17)},
        "both": {"Retry-After": after(3617), "Date": after(3600)},
        "nonsense": {"Retry-After": "soon"},
    }[form]

    def refuse(message: JSON) -> Response | None:
        if message.get("method") != "tools/call":
            return None
        return Response(status, b"", headers=headers)

    with odd_server(refuse=refuse) as odd:
        connection = await service_at(odd.url).open(view(), None)
        with pytest.raises(HttpRefused) as raised:
            await count(connection)
        await connection.aclose()
    if form == "nonsense":
        assert raised.value.retry_after is None
    else:
        assert raised.value.retry_after == pytest.approx(17, abs=10 if form == "date" else 1)
        assert "again after" in raised.value.message


async def test_a_byte_order_mark_before_an_answer_does_no_harm() -> None:
    with odd_server() as odd:

        def with_mark(message: JSON) -> Response | None:
            if message.get("method") != "tools/call":
                return None
            result = {"content": [{"type": "text", "text": "one"}]}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return Response(200, BOM_UTF8 + json.dumps(answer).encode())

        odd.refuse = with_mark
        connection = await service_at(odd.url).open(view(), None)
        assert text_of(await connection.call("inc", {}, Caller())) == "one"
        await connection.aclose()


# Lists.


def ignoring(cursor: str) -> Callable[[str | None], JSON]:
    return lambda _: {"tools": [tool("inc"), tool("get")], "nextCursor": cursor}


def cycling(cursor: str | None) -> JSON:
    other = "b" if cursor == "a" else "a"
    return {"tools": [tool(f"from_{cursor or 'start'}")], "nextCursor": other}


def numbered(cursors: list[object]) -> Callable[[Any], JSON]:
    """Pages, each but the first with one of these cursors."""

    def list_page(cursor: Any) -> JSON:
        number = 0 if cursor is None else cursors.index(cursor) + 1
        following = {"nextCursor": cursors[number]} if number < len(cursors) else {}
        return {"tools": [tool(f"page_{number}")], **following}

    return list_page


@pytest.mark.parametrize(
    "cursors", matrix([2, 3], [{"offset": 1}, {"offset": 2}], [[1], []], [0.5, 1.5]), ids=str
)
async def test_a_cursor_goes_back_as_it_came(cursors: list[object]) -> None:
    with odd_server(list_page=numbered(cursors)) as odd:
        names = [spec.name for spec in await service_at(odd.url).tools()]
    assert names == ["page_0", "page_1", "page_2"]


async def test_a_page_that_never_comes_costs_no_page_before_it() -> None:
    release = threading.Event()

    def list_page(cursor: str | None) -> JSON:
        if cursor is not None:
            release.wait(60)
        return {"tools": [tool("inc")], "nextCursor": "2"}

    with odd_server(list_page=list_page) as odd, anyio.fail_after(30):
        try:
            service = service_at(odd.url, connect_seconds=3.0)
            assert [spec.name for spec in await service.tools()] == ["inc"]
        finally:
            release.set()


def always_new(cursor: str | None) -> JSON:
    number = int(cursor or 0)
    return {"tools": [tool("inc"), tool("get")], "nextCursor": str(number + 1)}


def failing(cursor: str | None) -> JSON:
    if cursor is None:
        return {"tools": [tool("inc"), tool("get")], "nextCursor": "next"}
    return {"no tools": []}


@pytest.mark.parametrize(
    ("list_page", "names"),
    matrix(
        (ignoring("same"), ["inc", "get"]),
        (ignoring(""), ["inc", "get"]),
        (cycling, ["from_start", "from_a", "from_b"]),
        (always_new, ["inc", "get"]),
        (failing, ["inc", "get"]),
    ),
)
async def test_a_list_without_an_end_keeps_its_tools(
    list_page: Callable[[str | None], JSON], names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with odd_server(list_page=list_page) as odd:
        assert [spec.name for spec in await service_at(odd.url).tools()] == names
    assert "tools/list of odd is cut short" in caplog.text


@pytest.mark.thorough
async def test_a_list_of_ever_new_tools_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statehold.tools.upstream.paging.LIST_SECONDS", 0.5)

    def list_page(cursor: str | None) -> JSON:
        number = int(cursor or 0)
        return {"tools": [tool(f"tool_{number}")], "nextCursor": str(number + 1)}

    with odd_server(list_page=list_page) as odd, anyio.fail_after(60):
        assert len(await service_at(odd.url).tools()) >= 1


# Another transport.


@pytest.mark.parametrize("status", matrix(405, 404, 400))
async def test_a_url_that_speaks_sse_is_used_and_remembered(status: int, tmp_path: Path) -> None:
    with odd_server(post_to_sse=status) as odd:
        odd.redirect = lambda _method, asked: (
            page(307, Location="/sse") if asked == "/events" else None
        )
        service = service_at(f"{odd.origin}/events", tmp_path)
        assert [spec.name for spec in await service.tools()] == ["inc", "closed_inc"]
        assert service.transport == "sse"
        tries = len([each for each in odd.requests if each[0] == "POST" and each[1] == "/sse"])
        connection = await service.open(view(), None)
        assert await count(connection) == 1
        await connection.aclose()
        later = service_at(f"{odd.origin}/events", tmp_path)
        assert await later.recall()
        connection = await later.open(view(), None)
        await connection.aclose()
        posts = [each for each in odd.requests if each[0] == "POST" and each[1] == "/sse"]
        assert len(posts) == tries, "the choice is remembered"


@pytest.mark.thorough
async def test_a_url_that_ends_in_sse_may_speak_streamable_http() -> None:
    with odd_server() as odd:
        odd.redirect = lambda method, path: (
            page(307, Location="/mcp/") if path == "/sse" and method != "GET" else None
        )
        service = service_at(f"{odd.origin}/sse")
        connection = await service.open(view(), None)
        assert service.transport == "http"
        assert await count(connection) == 1
        await connection.aclose()


async def test_an_address_without_either_transport_names_the_type() -> None:
    with odd_server() as odd:
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(f"{odd.origin}/nowhere").open(view(), None)
        assert "odd answered HTTP 404 (Not Found)" in raised.value.message
        assert "`type` of [services.odd]" in raised.value.message
        assert "Tried as `sse`: odd answered HTTP 405" in raised.value.message
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(f"{odd.origin}/nowhere", type="http").open(view(), None)
        assert "`type` of [services.odd]" in raised.value.message
        assert "Tried" not in raised.value.message


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(Response(200, b'{"secret": 1'), id="broken JSON"),
        pytest.param(Response(200, b'[{"jsonrpc": "2.0", "secret": 1}]'), id="batch"),
        pytest.param(Response(200, b"data: {secret\n\n", "text/event-stream"), id="broken event"),
    ],
)
async def test_an_answer_that_is_no_message_is_a_fault_of_the_server(response: Response) -> None:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = lambda message: response if message["method"] == "tools/call" else None
        with pytest.raises(UpstreamMisbehaved) as caught:
            await count(connection)
        assert "secret" not in caught.value.message
        odd.refuse = lambda message: None
        assert await count(connection) == 1
        await connection.aclose()


STRAY: dict[str, JSON] = {
    "result": {"id": 999_999, "result": {"content": []}},
    "error": {"id": 999_999, "error": {"code": -32000, "message": "No"}},
    "text": {"id": "abc", "result": {"content": []}},
    "notification": {"method": "notifications/message", "params": {"level": "info", "data": 1}},
    "request": {"id": 1, "method": "ping"},
}


@pytest.mark.parametrize("stray", matrix(*STRAY))
@pytest.mark.parametrize("method", matrix("tools/call", "initialize"))
async def test_a_response_that_answers_another_request_fails_its_own_at_once(
    stray: str, method: str
) -> None:
    response = Response(200, json.dumps({"jsonrpc": "2.0", **STRAY[stray]}).encode())
    with odd_server() as odd:
        if method == "tools/call":
            connection = await service_at(odd.url).open(view(), None)
            odd.refuse = lambda message: response if message["method"] == method else None
            with anyio.fail_after(20), pytest.raises(UpstreamMisbehaved):
                await count(connection)
            odd.refuse = lambda message: None
            assert await count(connection) == 1
            await connection.aclose()
        else:
            odd.refuse = lambda message: response if message["method"] == method else None
            with anyio.fail_after(20), pytest.raises(UpstreamMisbehaved):
                await service_at(odd.url).open(view(), None)


@pytest.mark.parametrize(
    ("stray", "is_followed"),
    matrix(("result", False), ("error", False), ("text", True), ("request", True)),
)
async def test_an_event_that_answers_another_request_fails_its_own_at_once(
    stray: str, is_followed: bool
) -> None:
    def refuse(message: JSON) -> Response | None:
        if message["method"] != "tools/call":
            return None
        events: list[JSON] = [STRAY["notification"], STRAY[stray]]
        if is_followed:
            result: JSON = {"content": [], "structuredContent": {"count": 7}}
            events.append({"id": message["id"], "result": result})
        lines = (json.dumps({"jsonrpc": "2.0", **event}).encode() for event in events)
        return _events(b"".join(b"data: " + line + b"\n\n" for line in lines))

    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = refuse
        with anyio.fail_after(20):
            if stray == "request":
                assert await count(connection) == 7
            else:
                with pytest.raises(UpstreamMisbehaved):
                    await count(connection)
        odd.refuse = lambda message: None
        assert await count(connection) == 1
        await connection.aclose()


FORMS: dict[str, Callable[[JSON], Response]] = {
    "json": lambda answer: Response(200, json.dumps(answer).encode()),
    "event": lambda answer: _events(b"data: " + json.dumps(answer).encode() + b"\n\n"),
    "compact": lambda answer: _events(
        b"event: message\r\nid: 7\r\ndata:"
        + json.dumps(answer, separators=(",", ":")).encode()
        + b"\r\n\r\n"
    ),
    "id last": lambda answer: _events(
        b": hello\n\ndata: "
        + json.dumps(dict(reversed(answer.items())), separators=(",", ":")).encode()
        + b"\n\n"
    ),
    "lines": lambda answer: _events(
        "".join(f"data: {line}\n" for line in json.dumps(answer, indent=1).splitlines()).encode()
        + b"\n"
    ),
}
"""The responses with one answer."""


def _events(body: bytes) -> Response:
    return Response(200, body, "text/event-stream")


@pytest.mark.parametrize("form", matrix(*FORMS))
@pytest.mark.parametrize("number", matrix(None, "text", "nested"))
async def test_an_answer_reaches_its_caller_in_every_form(form: str, number: str | None) -> None:
    def refuse(message: JSON) -> Response | None:
        if message["method"] != "tools/call":
            return None
        answer_id = str(message["id"]) if number == "text" else message["id"]
        result: JSON = {"content": [], "structuredContent": {"count": 7}}
        if number == "nested":
            result["_meta"] = {"one": {"jsonrpc": "2.0", "id": message["id"] + 1, "result": {}}}
        return FORMS[form]({"jsonrpc": "2.0", "id": answer_id, "result": result})

    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = refuse
        with anyio.fail_after(20):
            assert await count(connection) == 7
        await connection.aclose()


@pytest.mark.parametrize("form", matrix("json", "event", "compact", "id last", "lines", quick=2))
async def test_a_response_with_the_id_of_a_call_in_flight_does_not_answer_that_call(
    form: str,
) -> None:
    waits, arrived = threading.Event(), threading.Event()
    ids: list[int] = []

    def refuse(message: JSON) -> Response | None:
        if message["method"] != "tools/call":
            return None
        ids.append(message["id"])
        if len(ids) == 1:
            arrived.set()
            waits.wait(20)
            return None
        result: JSON = {"content": [], "structuredContent": {"count": -1}}
        # The id of its own request stands within the answer, too.
        result["_meta"] = {"id": message["id"]}
        return FORMS[form]({"jsonrpc": "2.0", "id": ids[0], "result": result})

    counts: list[int] = []
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = refuse

        async def call() -> None:
            counts.append(await count(connection))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.to_thread.run_sync(arrived.wait)
                with pytest.raises(UpstreamMisbehaved):
                    await count(connection)
                waits.set()
        assert counts == [1]
        await connection.aclose()


@pytest.mark.parametrize("content_type", matrix("application/json", "text/event-stream"))
async def test_an_error_without_an_id_refuses_the_request_of_its_response(
    content_type: str,
) -> None:
    body = rpc_error(200, -32600, "Bad words").body
    if content_type != "application/json":
        body = b"data: " + body + b"\n\n"
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = lambda message: (
            Response(200, body, content_type) if message["method"] == "tools/call" else None
        )
        with anyio.fail_after(20), pytest.raises(UpstreamRefused, match="Bad words"):
            await count(connection)
        await connection.aclose()
