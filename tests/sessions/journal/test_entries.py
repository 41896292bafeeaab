"""Journal entries are short and hold no secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest
from support.selection import matrix

from statehold.sessions.errors import OutcomeUnknown
from statehold.sessions.journal.entries import MAX_BLOCKS, CallEntry, cap_json, excerpt
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.services import ToolResult, ToolSpec

REDACTOR = Redactor({"password", "authorization"})


def entry(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "session_id": "s",
        "node": "n",
        "epoch": 1,
        "seq": 1,
        "service": "web",
        "tool": "fill",
        "arguments": {},
        "started_at": 1.0,
        "ended_at": 2.0,
        "generation": 1,
        "outcome": ToolResult({"content": []}),
        "operation_id": None,
        "run": None,
        "limit": 200,
        "redactor": REDACTOR,
    }
    fields |= changes
    if isinstance(fields["outcome"], ToolResult):
        fields["outcome"] = excerpt(fields["outcome"])
    return CallEntry(**fields).record()


def test_arguments_that_may_be_secret_wait_for_a_result_that_names_them() -> None:
    spec = ToolSpec("fill", {}, frozenset({"value"}))
    arguments = {"fields": [{"name": "Code", "value": "123"}, {"name": "User", "value": "ada"}]}
    unknown = [None, OutcomeUnknown("'123' or 'ada'"), ToolResult({"content": []})]
    for outcome in unknown:
        request = entry(arguments=arguments, spec=spec, outcome=outcome).request
        assert [field["value"] for field in request["fields"]] == ["[redacted]"] * 2
    content = [{"type": "text", "text": "fill('hunter2')"}]
    knows = ToolResult({"content": content}, ["123", "hunter2"])
    record = entry(arguments=arguments, spec=spec, outcome=knows)
    assert [field["value"] for field in record.request["fields"]] == ["[redacted]", "ada"]
    assert record.result["content"] == ["fill('[redacted]')"]
    assert excerpt(knows).secrets == knows.secrets


def test_secrets_are_replaced_at_every_depth_and_in_any_case():
    arguments = {"user": "ada", "Password": "x", "list": [{"AUTHORIZATION": "y", "n": 1}]}
    assert REDACTOR.value(arguments) == {
        "user": "ada",
        "Password": "[redacted]",
        "list": [{"AUTHORIZATION": "[redacted]", "n": 1}],
    }
    assert arguments["Password"] == "x"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"content": "no list", "isError": True},
        {"content": [{"type": "text", "text": "short"}, 7, {"type": "text", "text": None}]},
        {"content": [{"type": "text", "text": f"{'x' * 480} password=hunter2{'y' * 10_000}"}]},
        {"content": [{"type": "image", "data": "A" * 10_000}], "structuredContent": {"n": 1}},
        {"content": [{"type": "text", "text": "x"}] * 1000, "isError": False},
        {"resultType": "input_required", "inputRequests": {"a": "x" * 10_000}},
    ],
)
def test_an_excerpt_of_a_result_is_small(payload: dict[str, Any]):
    part = excerpt(ToolResult(payload))
    assert len(orjson.dumps(part)) < MAX_BLOCKS * 1000
    assert "A" * 100 not in str(part)


def test_long_requests_are_cut_and_say_how_long_they_were():
    long = json.loads(cap_json({"text": "x" * 1000}, 100))
    assert long == {"truncated": '{"text":"' + "x" * 91, "bytes": 1011}
    huge = json.loads(cap_json({"n": 2**70, "text": "x" * 1000}, 100))
    assert huge["truncated"].startswith('{"n":1180591620717411303424,"text":"xxx')
    assert (len(huge["truncated"]), huge["bytes"]) == (100, 1038)


def test_every_number_and_text_of_a_request_is_kept():
    arguments: dict[str, Any] = {
        "n": 2**70,
        "list": [-(2**64), 2**64],
        "text": "é\0",
        "password": "x",
    }
    assert entry(arguments=arguments).request == {**arguments, "password": "[redacted]"}
    half = {"n": 2**70, "half": "\ud800", "x": 1}
    assert entry(arguments=half).request == half
    assert json.loads(cap_json(half, 100)) == half


def test_an_entry_names_arguments_that_are_not_json():
    assert json.loads(cap_json({"n": object()}, 100)) == {"unencodable": True}


def test_a_secret_is_not_kept_even_when_it_is_cut():
    request = entry(arguments={"password": "hunter2" * 100, "pad": "x" * 500}).request
    assert "hunter2" not in str(request)


class Looking(Redactor):
    """Counts the texts that are looked at."""

    looked = 0

    def text(self, text: str, limit: int | None = None) -> str:
        self.looked += 1
        return super().text(text, limit)


@pytest.mark.parametrize("number", matrix(1, 2**70))
def test_of_large_arguments_no_more_is_looked_at_than_is_kept(number: int) -> None:
    looking = Looking({"password"})
    arguments = {"number": number, "password": "hunter2", "items": [["x"] * 100] * 10_000}
    request = entry(arguments=arguments, redactor=looking).request
    assert looking.looked <= 400
    start = f'{{"number":{number},"password":"[redacted]","items":[["x","x"'
    assert request["truncated"].startswith(start)
    assert request["bytes"] == len(json.dumps(arguments, separators=(",", ":")))


def test_a_result_keeps_its_texts_and_the_kinds_of_the_rest():
    link = {"type": "resource_link", "uri": "session://s/browser/files/a.md", "name": "a.md"}
    blocks = [{"type": "text", "text": "a" * 900}, {"type": "image", "data": "b" * 900}, link]
    blocks += [{"type": "text", "text": "b"}] * MAX_BLOCKS
    result = ToolResult({"content": blocks})
    kept = ["a" * 500, {"type": "image"}, {"type": "resource_link", "uri": link["uri"]}]
    shown = {
        "content": [*kept, *("b" for _ in range(MAX_BLOCKS - 3))],
        "is_error": False,
        "cut": {"0": 900},
        "left_out": 3,
    }
    assert excerpt(result).shorten(REDACTOR) == shown


@pytest.mark.parametrize(
    "secret", ["hunter2", 'it\'s "so" \\ secret', "grün ☃", "two\nlines", "l" * 700, "m" * 250]
)
def test_a_secret_argument_is_not_kept_where_the_result_repeats_it(secret: str) -> None:
    arguments = {"fields": [{"name": "pw", "Password": {"value": secret}}], "password": "x"}
    texts = [f"{secret}", f"fill({secret!r})", json.dumps([secret]), f"{secret} and " * 9]
    texts.append(f"{'x' * 400}{secret}")
    content = [{"type": "text", "text": text} for text in texts]
    fields = {"arguments": arguments, "limit": 10_000}
    stored = entry(**fields, outcome=ToolResult({"content": content})).result["content"]
    failed = entry(**fields, outcome=OutcomeUnknown(f"No {secret} there.")).error
    for text in (*stored, failed):
        assert "[redacted]" in text
        assert secret[:4] not in text
        assert secret[-4:] not in text


@pytest.mark.parametrize("secret", ["it's s/e&cret+ ~1", "grün ☃ *", "l l" * 300])
@pytest.mark.parametrize("spelled", [quote, quote_plus, partial(quote, safe="/'+~*&")])
def test_a_secret_argument_is_not_kept_where_it_is_in_an_address(
    secret: str, spelled: Callable[..., str]
) -> None:
    address = f"https://a.test/?q={spelled(secret)}"
    content = [{"type": "text", "text": one} for one in (address, address.lower())]
    stored = entry(
        arguments={"password": secret}, limit=10_000, outcome=ToolResult({"content": content})
    )
    assert stored.result["content"] == ["https://a.test/?q=[redacted]"] * 2


def test_a_short_secret_is_left_in_results() -> None:
    outcome = ToolResult({"content": [{"type": "text", "text": "an example"}]})
    record = entry(arguments={"password": "exa", "user": "example"}, outcome=outcome)
    assert record.result["content"] == ["an example"]


def test_the_status_of_a_call_is_what_became_of_it():
    assert entry().status == "ok"
    assert entry(outcome=ToolResult({"isError": True, "content": []})).status == "error"
    assert entry(outcome=OutcomeUnknown("gone")).status == "outcome_unknown"
    assert entry(outcome=OutcomeUnknown("gone")).error == "gone"
    assert entry(outcome=TimeoutError()).status == "cancelled"


def test_endless_nesting_is_stored_to_a_depth():
    nested: Any = {"password": "hunter2"}
    for _ in range(2000):
        nested = {"list": [nested]}
    request = entry(arguments={"deep": nested}, limit=2000).request
    assert '{"list":"..."}' in orjson.dumps(request).decode()
    assert "hunter2" not in str(request)
