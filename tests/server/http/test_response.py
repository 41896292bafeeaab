"""Serialized results, as they are sent to the client."""

from __future__ import annotations

import gc
import json
import math
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message
from support.gateway_process import JSON, Way, structured, text_of
from support.own_results import check_own_result

from statehold.client.results import CallResult
from statehold.server.http.exchange import CallResponse, PlainRequest, ToolCall, encode
from statehold.server.protocol.results import ResultForm, service_result
from statehold.server.sdk.access import request_connection
from statehold.sessions.calls.request import CallAnswer

MODERN = ResultForm(modern=True, info={})
SESSION: Any = SimpleNamespace(id="sh_x", summary=lambda: {"id": "sh_x"})


def wire(payload: JSON, *, modern: bool) -> JSON:
    answer = CallAnswer({"content": [], **payload}, SESSION)
    return service_result(answer, ResultForm(modern=modern, info={}), service="s")


def test_an_ordinary_result_is_that_of_the_server_alone() -> None:
    payload: JSON = {"content": [{"type": "text", "text": "done"}], "isError": False}
    assert wire(payload, modern=False) == payload
    assert wire({**payload, "_meta": {"a": 1}}, modern=False)["_meta"] == {"a": 1}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_note_comes_after_the_first_text_of_the_result(count: int) -> None:
    own: list[JSON] = [{"type": "text", "text": text} for text in "ab"[:count]]
    answer = CallAnswer({"content": own}, SESSION, "note")
    result = service_result(answer, MODERN, service="s")
    texts = [block["text"] for block in result["content"]]
    assert texts == (["note"], ["a\n\nnote"], ["a\n\nnote", "b"])[count]
    assert CallResult(result).text == "\n".join("ab"[:count])


@pytest.mark.parametrize(
    "block",
    [
        *(
            {"type": "text", "text": text}
            for text in ("42", '"x"', " [1]\n", "NaN", "{a}", "{} {}")
        ),
        *({"type": "text", "text": text} for text in ("{}", '{"a": {}}\n', '{\n "a": "}"\n}\n')),
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "a:b", "name": "b"},
    ],
    ids=str,
)
def test_a_client_that_reads_the_first_block_only_reads_the_note(block: JSON) -> None:
    note = 'a "note"\nof two lines, é'
    answer = CallAnswer({"content": [block]}, SESSION, note)
    result = service_result(answer, MODERN, service="s", own_uris=True)
    text = result["content"][0]["text"]
    if is_object(block.get("text")):
        assert json.loads(text) == {**json.loads(block["text"]), "statehold_notice": note}
    else:
        assert note in text
    assert CallResult(result).blocks == [block]


def is_object(text: str | None) -> bool:
    try:
        return text is not None and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def test_a_legacy_client_gets_an_unknown_block_as_text() -> None:
    known: JSON = {"type": "text", "text": "a"}
    unknown: JSON = {"type": "hologram", "size": 2**70}
    first, second = wire({"content": [known, unknown]}, modern=False)["content"]
    assert first == known
    assert second["type"] == "text"
    assert json.loads(second["text"]) == unknown
    assert wire({"content": [unknown]}, modern=True)["content"] == [unknown]


@pytest.mark.parametrize("more", [{}, {"large": 2**70}])
def test_no_number_is_written_as_null(more: JSON) -> None:
    message: JSON = {"a": [math.nan, {"b": math.inf}], "c": 1.5, **more}

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    document = json.loads(encode(message), parse_constant=refuse)
    assert document == {"a": [None, {"b": None}], "c": 1.5, **more}


@pytest.mark.parametrize("more", [{}, {"large": 2**70, "none": math.nan}])
def test_half_of_a_surrogate_pair_keeps_nobody_from_reading_the_rest(more: JSON) -> None:
    wire = encode({"half \ud83d": ["\udc00 and \ud83d\ude00", "é"], **more})
    assert b"\\ud83d" not in wire
    document = json.loads(wire)
    assert document["half \ufffd"] == ["\ufffd and 😀", "é"]
    assert document.get("large") == more.get("large")


async def test_text_of_our_tools_is_compact_and_without_nulls_but_for_stored_ones(
    memory: Way,
) -> None:
    async with memory.connect() as client:

        async def run(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            check_own_result(tool, structured(result))
            assert "\n" not in text_of(result)
            assert '": ' not in text_of(result)
            return json.loads(text_of(result))

        session = await run("session_create", state={"kept": {"deep": [1]}})
        assert "name" not in session
        assert "reason" not in session
        assert all("last_error" not in service for service in session["services"])
        listed = await run("session_list")
        assert not [
            key for one in listed["sessions"] for key, value in one.items() if value is None
        ]
        one = {"session_id": session["session_id"]}
        nothing = {"path": "/kept", "values": {"none": None}, "mode": "replace"}
        await run("state_update", **one, **nothing)
        state = await run("state_get", **one)
        assert '"none":null' in json.dumps(state, separators=(",", ":"))


async def test_a_response_needs_no_garbage_collector() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    request = PlainRequest({}, {"type": "http", "headers": []}, receive, send)
    gc.disable()
    try:
        connection = request_connection("2026-07-28", b"{}")
        response = CallResponse(request, ToolCall(1, {"name": "inc"}, {}), connection)
        context = response.create_context()
        response.end()
        reference = weakref.ref(response)
        del response, context
        assert reference() is None
    finally:
        gc.enable()
