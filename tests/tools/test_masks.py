"""Masks of secrets in the bodies of responses: in any pieces, in any spelling, and without a delay of other text."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote

import httpx2
import pytest

from statehold.tools.logins.masked_response import masked
from statehold.tools.logins.masks import MASKS, Masks
from statehold.tools.processes.stderr import OutputTail

TOKEN = 'at-0123/456+789"tail=='
OTHER = "rt-0123456789"


async def body_of(parts: list[bytes], **headers: str) -> bytes:
    response = masked(response_of(parts, **headers))
    return await response.aread()


def response_of(parts: list[bytes], **headers: str) -> httpx2.Response:
    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    request = httpx2.Request("POST", "http://127.0.0.1/")
    request.extensions[MASKS] = (Masks([TOKEN]), Masks([OTHER, "short"]))
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx2.Response(200, headers=named, content=stream(), request=request)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_secret_is_hidden_in_every_spelling_and_any_pieces(size: int) -> None:
    spelled = [TOKEN, json.dumps(TOKEN), json.dumps([json.dumps(TOKEN)]), quote(TOKEN)]
    spelled += [json.dumps(TOKEN).replace("/", r"\/"), quote(TOKEN, safe=""), OTHER]
    spelled += [quote(TOKEN).replace("%2B", "%2b").replace("%3D", "%3d")]
    # As the encoders of .NET and of Gson write it.
    spelled += [TOKEN.replace("+", r"\u002B").replace('"', r"\u0022")]
    spelled += [TOKEN.replace("=", r"\u003d").replace('"', '\\"')]
    spelled += [b64encode(b"x" * n + TOKEN.encode() + b"y" * n).decode() for n in range(3)]
    data = ", short, ".join(spelled).encode()
    hidden = await body_of([data[start : start + size] for start in range(0, len(data), size)])
    assert hidden.count(b"[login]") == len(spelled)
    assert hidden.count(b", short, ") == len(spelled) - 1
    for core in (b"0123", b64encode(TOKEN.encode())[4:-4]):
        assert core not in hidden


async def test_a_compressed_body_is_hidden_too() -> None:
    hidden = await body_of([gzip.compress(TOKEN.encode())], content_encoding="gzip")
    assert hidden == b"[login]"


async def test_a_secret_that_takes_the_place_of_another_is_hidden_in_an_open_stream() -> None:
    masks = Masks(["first-secret"])
    assert masks.hide(b"first-secret") == b"[login]"
    for secret in ("second-secret", "third-secret"):
        masks.add([secret])
    assert masks.hide(b"first-secret third-secret") == b"[login] [login]"
    masks.add(["fourth-secret"])
    assert masks.hide(b"first-secret fourth-secret") == b"first-secret [login]"


async def test_an_event_is_not_held_back() -> None:
    events = [b"data: one\n\n", b"data: at-", b"0123, two\n\n"]
    response = masked(response_of(events))
    async with aclosing(response.aiter_raw()) as parts:
        assert await anext(parts) == b"data: one\n\n"
        assert await anext(parts) == b"data: "
        assert await anext(parts) == b"at-0123, two\n\n"


async def test_a_secret_at_the_cut_of_a_long_output_is_hidden() -> None:
    tail = OutputTail(1000, hide=Masks([OTHER]).hide)
    for _ in range(500):
        tail.data_received(OTHER.encode())
        assert not set(tail.text) & set("0123456789")
