"""The forms of texts that differ at each run."""

from __future__ import annotations

import re

import pytest

from statehold.sessions.journal import wildcards
from statehold.sessions.journal.wildcards import Wildcard, split_at_wildcards

TEXTS = {
    "Order A-6a1657 placed at 12:03": "Order {ID} placed at {TIME}",
    "INV-00042 and ORD-2026-0001": "{ID} and {ID}",
    "Booking X7K9QP, k3j9x2ab": "Booking {ID}, {ID}",
    "Order 1043 of November 2026": "Order {NUMBER} of {DATE}",
    "Samstag, 28. November 2026": "{DATE}",
    "11/28/2026, 2:05:07\u202fPM": "{DATE}, {TIME}",
    "commit 1144d19, by 550e8400-e29b-41d4-a716-446655440000": "commit {ID}, by {ID}",
    "28 November 2026, 14:05:01": "{DATE}, {TIME}",
    "Monday, 30 November": "{DATE}",
    "Nov 28, 2026 11:30 PM": "{DATE} {TIME}",
    "am 28. novembre 2026": "am {DATE}",
    "2026-11-28T00:13:54.361Z": "{DATE}",
    "invoice-2026-11-28_01.pdf": "invoice-{DATE}_01.pdf",
    "11/28/2026 or 28.11.26": "{DATE} or {DATE}",
    "Sat Nov 28 00:13:24 UTC 2026": "{DATE}",
    "saved just now, seen 2 minutes ago": "saved {AGO}, seen {AGO}",
    "3 passed in 0.13s": "3 passed in {DURATION}",
    "#1042 of 1234567": "#{NUMBER} of {NUMBER}",
}
PLAIN = (
    *("Total: 12.00", "12345.50 EUR", "Cart (2)", "5 items", "UTF-8, MP3 and B2B", "v1.2.3"),
    *(
        "192.168.1.10",
        "rooms 12-14",
        "Order 3 of 5",
        "COVID-19",
        "You may 5",
        "a decade",
        "16:9",
        "#1 of us",
        "1,234,567",
    ),
)


def shown(text: str) -> str:
    parts = split_at_wildcards(text)
    return "".join(part if isinstance(part, str) else f"{{{part.name}}}" for part in parts)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_differs_becomes_a_wildcard_that_matches_it(text: str) -> None:
    assert shown(text) == TEXTS[text]
    parts = split_at_wildcards(text)
    pattern = "".join(
        getattr(wildcards, part.name) if isinstance(part, Wildcard) else re.escape(part)
        for part in parts
    )
    assert re.fullmatch(pattern, text)


def test_prices_counts_and_names_stay_as_they_are() -> None:
    assert [shown(text) for text in PLAIN] == list(PLAIN)
