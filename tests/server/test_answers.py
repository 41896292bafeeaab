"""Results as they go on the wire."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from front import JSON

from statehold.server.exchange import encode
from statehold.server.results import forwarded
from statehold.sessions.router import Answer


def wire(payload: JSON, *, modern: bool) -> JSON:
    answer = Answer({"content": [], **payload}, {"id": "sh_x"})
    return forwarded(answer, service="s", modern=modern, info={})


def test_a_legacy_client_gets_no_null_as_structured_content() -> None:
    assert "structuredContent" not in wire({"structuredContent": None}, modern=False)
    assert wire({"structuredContent": 0}, modern=False)["structuredContent"] == {"result": 0}


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

    found = json.loads(encode(message), parse_constant=refuse)
    assert found == {"a": [None, {"b": None}], "c": 1.5, **more}


@pytest.mark.parametrize("more", [{}, {"large": 2**70, "none": math.nan}])
def test_half_of_a_surrogate_pair_keeps_nobody_from_reading_the_rest(more: JSON) -> None:
    wire = encode({"half \ud83d": ["\udc00 and \ud83d\ude00", "é"], **more})
    assert b"\\ud83d" not in wire
    found = json.loads(wire)
    assert found["half \ufffd"] == ["\ufffd and 😀", "é"]
    assert found.get("large") == more.get("large")
