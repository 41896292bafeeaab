"""The fast path of legacy tool calls over Streamable HTTP answers as the SDK would, in the SDK's session."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import NoBackChannelError
from mcp_types import CONNECTION_CLOSED
from support.asgi import AsgiRequest
from support.door import Door, request
from support.gateway_process import JSON, service
from support.odd_requests import Change, body, instead, replace, twice, without
from support.selection import matrix
from support.waiting import until

from statehold.access.claims import VerifiedCaller
from statehold.server.gateway.gateway import Gateway
from statehold.server.http.exchange import BODY_LIMIT, PlainRequest, ToolCall, WholeBody
from statehold.server.http.legacy_era import LegacyResponse, StreamQuestions
from statehold.server.protocol.server import StateholdServer
from statehold.server.sdk.http_sessions import open_transport
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.transitions.create import CreationOptions

VERSION = "2025-06-18"


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"server": {"auto_session": True}, "services": {"quick": service("asking")}}


@pytest.fixture
async def door(mcp_server: StateholdServer) -> AsyncGenerator[Door]:
    opened = Door(mcp_server, StreamableHTTPSessionManager(mcp_server))
    async with opened.manager.run(), opened.direct.run():
        await opened.enter(elicitation={}, sampling={})
        yield opened


@pytest.fixture
async def impatient(mcp_server: StateholdServer) -> AsyncGenerator[Door]:
    """A session with a ping every twentieth of a second, so that its client sees a call run."""
    opened = Door(mcp_server, StreamableHTTPSessionManager(mcp_server), ping_seconds=0.05)
    async with opened.manager.run(), opened.direct.run():
        await opened.enter(elicitation={})
        yield opened


@pytest.fixture
async def session(gateway: Gateway) -> str:
    await gateway.probes.ready()
    return (await gateway.registry.create(LOCAL, CreationOptions())).id


@pytest.fixture
def one(session: str) -> JSON:
    return {"session_id": session}


@pytest.fixture
async def used(door: Door, one: JSON) -> JSON:
    """A session whose upstream runs already."""
    assert (await door.call("get", one).of(door.direct)).status == 200
    return one


async def test_a_plain_call_never_reaches_the_sdk(door: Door, one: JSON) -> None:
    answer = await door.call("inc", one).of(door.direct)
    assert (answer.status, answer.type) == (200, "application/json")
    assert answer.header("mcp-session-id") == door.session
    assert answer.result["structuredContent"]["count"] == 1
    assert door.passed == []


SAME: dict[str, tuple[str, JSON]] = {
    "a result": ("get", {}),
    "an error of the upstream": ("fail", {}),
    "an unknown tool": ("nothing_like_it", {}),
    "an unknown session": ("get", {"session_id": "sh_" + "a" * 26}),
    "a session that is a number": ("get", {"session_id": 7}),
    "a tool of ours": ("session_info", {}),
    "arguments that are not right": ("session_create", {"name": 7}),
    "half of a surrogate pair": ("session_create", {"name": "\ud800"}),
}


@pytest.mark.parametrize("what", SAME)
async def test_an_answer_is_the_same_as_that_of_the_sdk(what: str, door: Door, one: JSON) -> None:
    tool, arguments = SAME[what]
    ours = await door.call(tool, {**one, **arguments}).of(door.direct)
    assert door.passed == []
    theirs = await door.call(tool, {**one, **arguments}).of(door.sdk)
    if what == "half of a surrogate pair":
        # The SDK refuses such a body as invalid JSON.
        assert ours.result["_meta"]["statehold/error"]["code"] == "invalid_argument"
    else:
        assert ours.status == theirs.status == 200
        assert ours.header("mcp-session-id") == theirs.header("mcp-session-id")
        assert stable(ours.answer) == stable(theirs.answer)


def stable(answer: JSON) -> JSON:
    """Return an answer without the times in it."""
    if "_meta" in answer.get("result", {}):
        answer["result"]["_meta"].pop("statehold/session", None)
        content: JSON = answer["result"].get("structuredContent") or {}
        if "times" in content or "last_active" in content or "session_id" in content:
            del answer["result"]["structuredContent"], answer["result"]["content"]
    return answer


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**70 + 1, "1", "", "a b"], ids=repr)
async def test_ids_and_large_integers_return_exact(door: Door, one: JSON, number: Any) -> None:
    answer = await door.call("echo", {**one, "n": 2**70 + 1}, id=number).of(door.direct)
    assert answer.answer["id"] == number
    assert answer.result["structuredContent"]["arguments"] == {"n": 2**70 + 1}
    assert door.passed == []


async def test_progress_and_messages_turn_the_answer_into_a_stream(door: Door, one: JSON) -> None:
    slow = {**one, "seconds": 0.05}
    answer = await door.call("slow", slow, {"progressToken": 7}).of(door.direct)
    assert (answer.status, answer.type) == (200, "text/event-stream")
    assert answer.header("mcp-session-id") == door.session
    events = [event["params"] for event in answer.events[:-1]]
    assert [(p["progress"], p["progressToken"]) for p in events] == [(n, 7) for n in range(1, 6)]
    assert answer.answer["result"]["content"] == [{"type": "text", "text": "done"}]
    logged = await door.call("log", {**one, "level": "error", "text": "told"}).of(door.direct)
    assert logged.events[0]["method"] == "notifications/message"
    assert logged.events[0]["params"]["data"] == "told"
    assert "result" in logged.answer
    assert door.passed == []


# Questions.


async def question(call: AsgiRequest) -> JSON:
    """Wait for the question on the stream of a call."""
    with anyio.fail_after(20):
        while not any("id" in event for event in call.events):
            await call.has_body.wait()
            call.has_body = anyio.Event()
    return next(event for event in call.events if "id" in event)


async def asking(door: Door, call: AsgiRequest, *messages: JSON) -> tuple[JSON, list[AsgiRequest]]:
    """Run a call that asks and send messages while it waits. Return the question and the answers to the messages.

    A message without an id is an answer to the question.
    """
    said: list[AsgiRequest] = []
    asked: JSON = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.of, door.direct)
        asked |= await question(call)
        for message in messages:
            known = {"jsonrpc": "2.0", **({} if "method" in message else {"id": asked["id"]})}
            said.append(await door.post({**known, **message}).of(door.direct))
    return asked, said


def said_by(call: AsgiRequest) -> str:
    return call.answer["result"]["content"][-1]["text"]


async def test_a_question_goes_out_with_the_call_and_its_answer_is_taken(
    door: Door, one: JSON
) -> None:
    call = door.call("ask", one)
    answer: JSON = {"result": {"action": "accept", "content": {"answer": "42"}}}
    unknown: JSON = {"id": "statehold-0", "result": {}}
    query, answers = await asking(door, call, unknown, {"result": 7}, answer)
    assert query["method"] == "elicitation/create"
    assert [each.status for each in answers] == [202, 400, 202]
    assert (answers[2].text, answers[2].header("mcp-session-id")) == (b"", door.session)
    assert json.loads(said_by(call)) == answer["result"]
    assert len(door.passed) == 2
    late = await door.post({"jsonrpc": "2.0", "id": query["id"], **answer}).of(door.direct)
    assert (late.status, len(door.passed)) == (202, 3)


@pytest.mark.parametrize(
    "answer",
    [{"error": {"code": -1, "message": "I will not"}}, {"result": {"content": {"x": math.nan}}}],
)
async def test_a_refusal_is_an_answer(door: Door, one: JSON, answer: JSON) -> None:
    call = door.call("ask", one)
    await asking(door, call, answer)
    assert "refused" in said_by(call)
    assert door.passed == []


async def test_a_question_cannot_be_answered_in_another_session(
    mcp_server: StateholdServer, door: Door, one: JSON
) -> None:
    other = Door(mcp_server, door.manager)
    await other.enter()
    call = door.call("ask", one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.of, door.direct)
        number = (await question(call))["id"]
        for way, action in ((other, "accept"), (door, "decline")):
            answer: JSON = {"jsonrpc": "2.0", "id": number, "result": {"action": action}}
            await way.post(answer).of(door.direct)
    assert len(door.passed) == 1
    assert "decline" in said_by(call)
    await other.leave()


# How a call ends.


async def begun(asking: AsgiRequest) -> None:
    """Wait until a silent call runs: then the client hears that it is kept alive."""
    with anyio.fail_after(20):
        await asking.has_body.wait()


def cancelled(number: object) -> JSON:
    params = {"requestId": number}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


@pytest.mark.parametrize("number", [1, "1"], ids=repr)
async def test_a_notification_cancels_a_call_which_is_answered(
    impatient: Door, one: JSON, number: object
) -> None:
    asking = impatient.call("hang", one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.of, impatient.direct)
        await begun(asking)
        for other in (2, "one", None, True):
            assert (await impatient.post(cancelled(other)).of(impatient.direct)).status in (
                202,
                400,
            )
        assert len(impatient.passed) == 4
        accepted = await impatient.post(cancelled(number)).of(impatient.direct)
        assert (accepted.status, accepted.text, len(impatient.passed)) == (202, b"", 4)
    assert asking.answer["id"] == 1
    assert asking.answer["error"]["code"] == REQUEST_CANCELLED
    assert impatient.direct.in_flight == 0


async def test_a_cancelled_question_is_withdrawn(door: Door, one: JSON) -> None:
    call = door.call("ask", one)
    query, _ = await asking(door, call, cancelled(1))
    assert call.answer["error"]["code"] == REQUEST_CANCELLED
    answer: JSON = {"jsonrpc": "2.0", "id": query["id"], "result": {"action": "accept"}}
    assert (await door.post(answer).of(door.direct)).status == 202
    assert len(door.passed) == 1


async def test_a_client_that_leaves_does_not_cancel_its_call(
    door: Door, one: JSON, gateway: Gateway
) -> None:
    asking = door.call("slow", {**one, "seconds": 0.5})
    asking.disconnected.set()
    await asking.of(door.direct)
    live = gateway.registry.live(LOCAL, one["session_id"])
    assert live is not None
    assert live.in_flight == 0
    answer = await door.call("get", one).of(door.direct)
    assert answer.result["structuredContent"]["count"] == 0
    # The answer holds the result alone.
    assert asking.answer["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_a_client_that_leaves_while_it_is_asked_answers_no_more(
    door: Door, one: JSON, gateway: Gateway
) -> None:
    call = door.call("ask", one)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.of, door.direct)
            await question(call)
            call.disconnected.set()
    live = gateway.registry.live(LOCAL, one["session_id"])
    assert live is not None
    assert live.in_flight == 0
    answer = await door.call("get", one).of(door.direct)
    assert answer.result["structuredContent"]["count"] == 0


async def test_a_call_whose_client_left_keeps_no_other_caller_from_being_asked(
    impatient: Door, one: JSON
) -> None:
    left = impatient.call("hang", one, id=7)
    with anyio.fail_after(8):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(left.of, impatient.direct)
            await begun(left)
            left.disconnected.set()
            call = impatient.call("ask", one)
            answer: JSON = {"jsonrpc": "2.0", "result": {"action": "accept", "content": {}}}
            await asking(impatient, call, answer)
            assert json.loads(said_by(call))["action"] == "accept"
            assert (await impatient.post(cancelled(7)).of(impatient.direct)).status == 202


async def test_a_client_that_left_is_not_asked(door: Door) -> None:
    asking, connection = AsgiRequest(b"", []), door.mcp_server.connection(door.session)
    assert connection is not None
    request = PlainRequest({}, {"type": "http"}, asking.receive, asking.send)
    call = LegacyResponse(
        request,
        ToolCall(1, {}, {}),
        connection,
        StreamQuestions(),
        on_end=lambda _: None,
        headers=(),
    )
    assert call.can_send_request
    call.on_disconnect()
    with pytest.raises(NoBackChannelError):
        await call.send_raw_request("elicitation/create", {})
    await call.notify("notifications/message", {"level": "info", "data": "unheard"})
    assert asking.messages == []


async def test_the_end_of_the_session_ends_its_calls(
    impatient: Door, one: JSON, gateway: Gateway
) -> None:
    # Without a session of Statehold, the call uses that of its connection, which is closed after the call.
    calls = [impatient.call("hang", one), impatient.call("hang", {}, id=2)]
    async with anyio.create_task_group() as tasks:
        for asking in calls:
            tasks.start_soon(asking.of, impatient.direct)
        for asking in calls:
            await begun(asking)
        with anyio.fail_after(4):
            assert (await impatient.leave()).status == 200
    assert [asking.answer["error"]["code"] for asking in calls] == [CONNECTION_CLOSED] * 2
    assert [asking.answer["id"] for asking in calls] == [1, 2]
    assert impatient.direct.in_flight == 0
    ended = await impatient.call("get", one).of(impatient.direct)
    assert (ended.status, len(impatient.passed)) == (404, 2)


async def test_a_call_keeps_its_session_from_being_idle(door: Door, one: JSON) -> None:
    transport = open_transport(door.manager, door.session, None)
    assert transport is not None
    assert transport.idle_scope is not None
    call = door.call("ask", one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.of, door.direct)
        number = (await question(call))["id"]
        assert transport.idle_scope.deadline == math.inf
        answer: JSON = {"jsonrpc": "2.0", "id": number, "result": {"action": "decline"}}
        await door.post(answer).of(door.direct)
    assert anyio.current_time() < transport.idle_scope.deadline < math.inf
    transport.idle_scope.cancel()
    assert (await door.call("get", one).of(door.direct)).status == 404


async def test_a_session_belongs_to_the_credential_that_opened_it(
    mcp_server: StateholdServer, one: JSON
) -> None:
    door = Door(mcp_server, StreamableHTTPSessionManager(mcp_server))
    ours, theirs = (
        VerifiedCaller(Principal(subject=name, client_id=name), []) for name in ("alice", "ben")
    )
    async with door.manager.run(), door.direct.run():
        door.user = ours
        await door.enter()
        assert (await door.call("get", one).of(door.direct)).status == 200
        assert door.passed == []
        for other in (theirs, None):
            door.user = other
            assert (await door.call("get", one).of(door.direct)).status == 404


async def test_a_session_that_is_not_initialized_yet_is_left_to_the_sdk(door: Door) -> None:
    hello = request("initialize", {"protocolVersion": VERSION, "capabilities": {}})
    hello["params"]["clientInfo"] = {"name": "tests", "version": "1"}
    opening = await door.post(hello, session="").of(door.direct)
    session = opening.header("mcp-session-id")
    door.passed.clear()
    listing = request("tools/call", {"name": "session_list", "arguments": {}})
    answer = await door.post(listing, session=session).of(door.direct)
    assert "result" in answer.answer
    assert len(door.passed) == 1


async def test_calls_leave_nothing_behind(
    mcp_server: StateholdServer, used: JSON, leaks: Any
) -> None:
    door = Door(mcp_server, StreamableHTTPSessionManager(mcp_server))
    async with door.manager.run(), door.direct.run():
        await door.enter(elicitation={})
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(door.call("get", used, id=number).of, door.direct)
        assert door.direct.in_flight == 0
        assert (await door.leave()).status == 200
        await until(lambda: mcp_server.connection(door.session) is None)
    await leaks.check()


# Unusual requests.


ODD: dict[str, Change] = {
    "another version": instead("mcp-protocol-version", "2099-01-01"),
    "version given twice": twice("mcp-protocol-version"),
    "no session": without("mcp-session-id"),
    "another session": instead("mcp-session-id", "0" * 32),
    "session given twice": twice("mcp-session-id"),
    "accepts no stream": instead("accept", "application/json"),
    "accepts anything": instead("accept", "*/*"),
    "no content type": without("content-type"),
    "another content type": instead("content-type", "text/plain"),
    "no length": without("content-length"),
    "too large": body(b" " * (BODY_LIMIT + 1)),
    "no JSON": body(b"nonsense"),
    "an empty body": body(b""),
    "a batch": body(b"[]"),
    "too deep": body(b"[" * 100_000),
    "a notification": replace(b'"id": 1, ', b""),
    "an id that is null": replace(b'"id": 1,', b'"id": null,'),
    "an id that is true": replace(b'"id": 1,', b'"id": true,'),
    "an id that is a fraction": replace(b'"id": 1,', b'"id": 1.5,'),
    "no jsonrpc": replace(b'"jsonrpc": "2.0", ', b""),
    "another method": replace(b"tools/call", b"tools/list"),
    "an unknown method": replace(b"tools/call", b"tools/call2"),
    "arguments that are a list": replace(b'"arguments": {', b'"arguments": [], "more": {'),
    "a name that is a number": replace(b'"name": "get"', b'"name": 7'),
    "a trace": replace(b'"name"', b'"_meta": {"traceparent": "00-00-00-00"}, "name"'),
}


@pytest.mark.parametrize("odd", matrix(*ODD, quick=8))
async def test_an_odd_request_is_answered_by_the_sdk(odd: str, door: Door, one: JSON) -> None:
    ours, theirs = (door.call("get", one) for _ in range(2))
    ODD[odd](ours)
    ODD[odd](theirs)
    await ours.of(door.direct)
    await theirs.of(door.sdk)
    assert (ours.status, ours.type) == (theirs.status, theirs.type)
    if ours.text != theirs.text:
        assert stable(ours.answer) == stable(theirs.answer)


@pytest.mark.parametrize("number", [b"null", b"1.5", b"[1]", b"a batch"])
async def test_an_invalid_id_and_a_batch_are_refused_with_the_id_null(
    door: Door, number: bytes
) -> None:
    line = b'{"jsonrpc": "2.0", "id": %b, "method": "ping"}' % number
    sent = door.post(b"[" + line.replace(number, b"1") + b"]" if number == b"a batch" else line)
    await sent.of(WholeBody(door.sdk))
    assert sent.status == 400
    answer = json.loads(sent.text)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize("version", matrix("2024-11-05", "2025-03-26", "2025-11-25", ""))
async def test_every_handshake_version_is_taken(door: Door, one: JSON, version: str) -> None:
    asking = door.call("get", one)
    change = (
        instead("mcp-protocol-version", version) if version else without("mcp-protocol-version")
    )
    change(asking)
    assert (await asking.of(door.direct)).status == 200
    assert door.passed == []
