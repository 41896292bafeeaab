"""An event stream reaches the SDK unchanged, however it is cut, but for answers to other requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from support.selection import matrix

from statehold.tools.upstream.transports.answer_stream import AnswerStream
from statehold.tools.upstream.transports.http_errors import NO_ANSWER

NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":{"id":9}}}'
RIGHT = b'{"jsonrpc":"2.0","id":7,"result":{"id":9}}'
WRONG = b'{"jsonrpc":"2.0","id":9,"result":{"id":7}}'
SPACED = b'{ "result": {"id": 9}, "id": "7", "jsonrpc": "2.0" }'


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, body: bytes, size: int) -> None:
        self._chunks = [body[at : at + size] for at in range(0, len(body), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def read(body: bytes, size: int, *, most: int = 10_000, number: int | None = 7) -> bytes:
    stream = AnswerStream(Chunks(body, size), number, most)
    checked = b"".join([chunk async for chunk in stream])
    await stream.aclose()
    return checked


@pytest.mark.parametrize("size", matrix(3, 1, 10_000))
@pytest.mark.parametrize("end", matrix(b"\n", b"\r\n", b"\r"))
async def test_a_stream_that_is_cut_anywhere_passes_but_for_answers_to_other_requests(
    size: int, end: bytes
) -> None:
    def events(*messages: bytes) -> bytes:
        lines = (b"id: 1" + end + b"data: " + message + end * 2 for message in messages)
        return b": hello" + end * 2 + b"".join(lines)

    unfinished = b"data: " + WRONG
    body = events(NOTE, b"", b"{broken", SPACED, RIGHT) + unfinished
    assert await read(body, size) == body
    checked = await read(events(NOTE, WRONG, RIGHT), size)
    assert checked.startswith(events(NOTE))
    assert WRONG not in checked
    assert checked.count(NO_ANSWER.encode()) == 1
    assert checked.endswith(RIGHT + end * 2)
    # During the handshake there is one request at a time.
    assert await read(events(WRONG), size, number=None) == events(WRONG)


async def test_an_event_that_is_too_long_is_not_held() -> None:
    body = b"data: " + RIGHT[:-1] + b" " * 200 + b"}\n\n"
    assert await read(body, 16, most=100) == body
