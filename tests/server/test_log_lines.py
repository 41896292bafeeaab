"""A log line is one line, whatever it quotes."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from statehold.server.process.logs import JsonLines, TextLines

FORGED = "gone\n12:00:00 INFO    statehold: all is well\x1b[2J\x9b31m\r\u2028end\x00"


def record(message: str, exc_info: Any = None) -> logging.LogRecord:
    return logging.LogRecord(
        "statehold.upstream",
        logging.WARNING,
        __file__,
        1,
        "%s said: %s",
        ("quick", message),
        exc_info,
    )


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_quoted_text_neither_begins_a_line_nor_steers_a_terminal(
    formatter: logging.Formatter,
) -> None:
    text = formatter.format(record(FORGED))
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert "all is well" in text
    if isinstance(formatter, JsonLines):
        assert FORGED in json.loads(text)["message"]


def test_a_quoted_text_in_a_traceback_does_not_look_like_a_line_of_the_log() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        text = TextLines().format(record("it", sys.exc_info()))
    first, *rest = text.splitlines()
    assert "Traceback" in rest[0]
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert first.endswith("quick said: it")
