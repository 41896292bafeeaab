"""The fast path of modern tool calls over HTTP answers as the SDK would, and refuses nothing itself."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.types import ASGIApp
from support.asgi import AsgiRequest
from support.gateway_process import JSON, service
from support.odd_requests import Change, body, instead, replace, twice, without
from support.selection import matrix

from statehold.server.gateway.gateway import Gateway
from statehold.server.http.exchange import BODY_LIMIT
from statehold.server.http.fast_path import FastPath
from statehold.server.protocol.request_checks import MAX_DEPTH
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.records import LOCAL
from statehold.sessions.transitions.create import CreationOptions

VERSION = "2026-07-28"
META: JSON = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"server": {"session_header": True}, "services": {"quick": service("quick")}}


def asked(tool: str, arguments: JSON, meta: JSON | None = None, **changes: Any) -> AsgiRequest:
    params = {"name": tool, "arguments": arguments, "_meta": {**META, **(meta or {})}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **changes}
    body = json.dumps(request).encode()
    headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("content-length", str(len(body))),
        ("mcp-protocol-version", VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ]
    if "session_id" in arguments:
        headers.append(("mcp-param-session-id", str(arguments["session_id"])))
    return AsgiRequest(body, headers)


async def nobody(*_: object) -> None:
    raise AssertionError("this was for the SDK")


@pytest.fixture(scope="module")
async def direct(mcp_server: StateholdServer) -> AsyncGenerator[FastPath]:
    """The fast path without the SDK."""
    app = FastPath(nobody, mcp_server)
    async with app.run():
        yield app


@pytest.fixture(scope="module")
async def impatient(mcp_server: StateholdServer) -> AsyncGenerator[FastPath]:
    """The fast path, which sends its clients a ping every twentieth of a second."""
    app = FastPath(nobody, mcp_server, ping_seconds=0.05)
    async with app.run():
        yield app


@pytest.fixture(scope="module")
async def sdk(mcp_server: StateholdServer) -> AsyncGenerator[ASGIApp]:
    manager = StreamableHTTPSessionManager(mcp_server)
    async with manager.run():
        yield StreamableHTTPASGIApp(manager)


@pytest.fixture
async def session(gateway: Gateway) -> str:
    await gateway.probes.ready()
    return (await gateway.registry.create(LOCAL, CreationOptions())).id


async def test_a_plain_call_never_reaches_the_sdk(direct: FastPath, session: str) -> None:
    answer = await asked("inc", {"session_id": session}).of(direct)
    assert (answer.status, answer.type) == (200, "application/json")
    assert answer.result["structuredContent"]["count"] == 1


async def test_an_answer_is_the_same_as_that_of_the_sdk(
    direct: FastPath, sdk: ASGIApp, session: str
) -> None:
    ours = await asked("get", {"session_id": session}).of(direct)
    theirs = await asked("get", {"session_id": session}).of(sdk)
    assert (ours.status, ours.type) == (theirs.status, theirs.type)
    assert ours.result["structuredContent"] == theirs.result["structuredContent"]
    assert stable(ours) == stable(theirs)


async def test_an_error_of_the_upstream_has_the_same_status_and_body(
    direct: FastPath, sdk: ASGIApp, session: str
) -> None:
    for tool in ("fail", "crash"):
        ours = await asked(tool, {"session_id": session}).of(direct)
        theirs = await asked(tool, {"session_id": session}).of(sdk)
        assert ours.status == theirs.status
        assert ours.result["isError"] is theirs.result["isError"] is True


async def test_a_silent_call_is_kept_alive(impatient: FastPath, session: str) -> None:
    answer = await asked("slow", {"session_id": session, "seconds": 0.5}).of(impatient)
    assert answer.type == "text/event-stream"
    assert answer.text.startswith(b": ping\r\n\r\n")
    assert b'"text":"done"' in answer.text


async def test_calls_leave_nothing_behind(direct: FastPath, session: str) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(asked("inc", {"session_id": session}).of, direct)
    answer = await asked("get", {"session_id": session}).of(direct)
    assert answer.result["structuredContent"]["count"] == 20
    assert direct.in_flight == 0


def by_get(asking: AsgiRequest) -> None:
    asking.method = "GET"


ODD: dict[str, Change] = {
    "GET": by_get,
    "another version in the header": instead("mcp-protocol-version", "2099-01-01"),
    "version given twice": twice("mcp-protocol-version"),
    "method given twice": twice("mcp-method"),
    "name given twice": twice("mcp-name"),
    "no method": without("mcp-method"),
    "no name": without("mcp-name"),
    "another name": instead("mcp-name", "get"),
    "a name that is no base64": instead("mcp-name", "=?base64?!?="),
    "another method": instead("mcp-method", "tools/list"),
    "no session header": without("mcp-param-session-id"),
    "another session header": instead("mcp-param-session-id", "sh_other"),
    "session header given twice": twice("mcp-param-session-id"),
    "accepts no stream": instead("accept", "application/json"),
    "accepts nothing known": instead("accept", "text/html"),
    "accepts anything": instead("accept", "*/*"),
    "no JSON": body(b"nonsense"),
    "an empty body": body(b""),
    "a batch": body(b"[]"),
    "a number": body(b"7"),
    "too deep": body(b"[" * 100_000),
    "a notification": replace(b'"id": 1, ', b""),
    "an id that is null": replace(b'"id": 1,', b'"id": null,'),
    "an id that is true": replace(b'"id": 1,', b'"id": true,'),
    "no jsonrpc": replace(b'"jsonrpc": "2.0", ', b""),
    "no envelope": replace(b"io.modelcontextprotocol/clientCapabilities", b"other"),
    "another version in the body": replace(VERSION.encode(), b"2099-01-01"),
    "arguments that are a list": replace(b'"arguments": {', b'"arguments": [], "more": {'),
    "a name that is a number": replace(b'"name": "inc"', b'"name": 7'),
    "no content type": without("content-type"),
    "another content type": instead("content-type", "text/plain"),
    "too large": body(b" " * (BODY_LIMIT + 1)),
    "no length": without("content-length"),
}


@pytest.mark.parametrize("odd", matrix(*ODD, quick=10))
async def test_an_odd_request_is_answered_by_the_sdk(
    odd: str, mcp_server: StateholdServer, sdk: ASGIApp, session: str
) -> None:
    ours, theirs = (asked("inc", {"session_id": session}) for _ in range(2))
    ODD[odd](ours)
    ODD[odd](theirs)
    both = FastPath(sdk, mcp_server)
    async with both.run():
        await ours.of(both)
    await theirs.of(sdk)
    assert (ours.status, ours.type) == (theirs.status, theirs.type)
    assert stable(ours) == stable(theirs)


def stable(answer: AsgiRequest) -> Any:
    """Return an answer without the parts that differ in every call: the count and the times."""
    try:
        document = json.loads(answer.text)
    except ValueError:
        return answer.text
    if "result" in document:
        document["result"].pop("content")
        document["result"].pop("structuredContent", None)
        document["result"]["_meta"].pop("statehold/session", None)
    return document


async def test_a_traced_call_is_left_to_the_sdk(direct: FastPath, session: str) -> None:
    parent = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with pytest.raises(AssertionError, match="for the SDK"):
        await asked("inc", {"session_id": session}, parent).of(direct)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


UNSOUND: dict[str, object] = {
    "half of a surrogate pair": "\ud800",
    "such a key": {"\ud800": 1},
    "no number": float("nan"),
    "an infinite number beside a null": [None, float("-inf")],
    "a large integer and no number": [2**70, float("nan")],
    "deeper than the limit": nested(MAX_DEPTH),
    "deeper than can be encoded": nested(300),
}


@pytest.mark.parametrize("unsound", UNSOUND)
@pytest.mark.parametrize("place", matrix("arguments", "_meta"))
async def test_a_value_that_no_transport_can_carry_is_refused_before_the_call(
    unsound: str, place: str, direct: FastPath, sdk: ASGIApp, session: str
) -> None:
    value = UNSOUND[unsound]
    arguments = {"session_id": session}
    for app in (direct, sdk):
        odd = {"x": value}
        more, meta = (odd, None) if place == "arguments" else ({}, odd)
        answer = json.loads((await asked("inc", {**arguments, **more}, meta).of(app)).text)
        # The SDK may refuse it first, in its own words.
        if app is direct or "result" in answer:
            assert answer["result"]["_meta"]["statehold/error"]["code"] == "invalid_argument"
    assert (await asked("inc", arguments).of(direct)).result["structuredContent"]["count"] == 1


async def test_a_large_value_is_passed_on(direct: FastPath, session: str) -> None:
    arguments: JSON = {"deep": nested(MAX_DEPTH - 10), "wide": [{"n": None}] * 1000, "big": 2**70}
    answer = await asked("echo", {"session_id": session, **arguments}).of(direct)
    assert answer.result["structuredContent"]["arguments"] == arguments
