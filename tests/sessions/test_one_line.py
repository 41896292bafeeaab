"""Texts as a person reads them: nothing is hidden, and nothing looks like something else."""

from __future__ import annotations

import sys

import pytest

from statehold.sessions.calls.approval import LINE_CHARACTERS, show_arguments
from statehold.sessions.one_line import spell_out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Stra\u00dfe M\u00fcller 5,00", None),
        ("\u043f\u0440\u0438\u0432\u0435\u0442 \u0434\u043e\u043c5", None),
        ("\u6ce8\u6587\u756a\u53f712345\u3092\u30ad\u30e3\u30f3\u30bb\u30eb", None),
        ("\u0930\u0941\u092a\u092f\u0947", None),
        ("p\u0430y", "p\\u0430y"),
        ("\u0441\u043e\u0441\u043e", "\\u0441\\u043e\\u0441\\u043e"),
        ("5\u041e", "5\\u041e"),
        ("\uff41b", "\\uff41b"),
        ("\u22125", "\\u22125"),
        ("\u0966", "\\u0966"),
        ("e\u0301", "e\\u0301"),
        ("a\u00a0b", "a\\xa0b"),
        ("a\nb\x7f", "a\\nb\\x7f"),
        ('"\u05e9\u05dc\u05d9, \u05e9\u05dc\u05da"', None),
        ('5 "\u05e9\u05dc\u05d9"', None),
        # A terminal would show 200 - 100, and the second text before the first.
        ('"\u05e9\u05dc 100 - 200"', '"\\u05e9\\u05dc 100 - 200"'),
        ('"\u05e9\u05dc": "\u05d9\u05da"', '"\\u05e9\\u05dc": "\\u05d9\\u05da"'),
        ("\u202e\u200d\u3164\ufe0f", "\\u202e\\u200d\\u3164\\ufe0f"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_odd_characters_are_spelled_out_and_texts_of_people_are_not(
    text: str, shown: str | None
) -> None:
    assert spell_out(text) == (shown or text)


@pytest.mark.thorough
def test_no_character_is_hidden() -> None:
    shown = {code: spell_out(chr(code)) for code in range(sys.maxunicode + 1)}
    assert [hex(code) for code in shown if not shown[code].strip(" ") and code != 0x20] == []
    assert all(map(str.isprintable, shown.values()))


def test_an_argument_begins_no_line() -> None:
    shown = show_arguments('{"note": "' + "x" * 200 + '\\n  \\"amount\\": 5", "amount": 500}')
    lines = shown.splitlines()
    assert [line for line in lines if line.strip().startswith('"amount"')] == ['  "amount": 500']
    assert all(len(line) <= LINE_CHARACTERS + 2 for line in lines)
    assert show_arguments("[" * 5000 + "]" * 5000).count("[") == 5000
