"""The event stream in which a server answers one request over Streamable HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final, cast

import anyio
import httpx2
import orjson
from mcp_types import PARSE_ERROR

from ....sessions.json_codec import JSON
from .http_errors import NO_ANSWER
from .pipe_requests import number_of

DRAIN_SECONDS: Final = 0.25

_END_LENGTH: Final = 4
_HEAD: Final = 256
"""Bytes of an event in which the id of an answer may stand before or behind its result."""
_DATA: Final = re.compile(rb"^data:[ ]?(.*?)$", re.MULTILINE)


class AnswerStream(httpx2.AsyncByteStream):
    """The body of one response. Closing it first reads it to its end, so that its TCP connection can be reused.

    The SDK (2.3) closes it right after the answer, just before its end arrives. It also takes the answer to another request
    for that to the request `number`; here an error takes its place. None: nothing is checked. Events of more than `most`
    bytes pass as they are, for the SDK to refuse.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, number: int | None, most: int) -> None:
        self._inner = inner
        self._number = number
        self._most = most
        self._chunks: AsyncIterator[bytes] | None = None
        self._event = bytearray()
        """The beginning of the event that has not ended yet."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = aiter(self._inner)
        async for chunk in self._chunks:
            checked = chunk if self._number is None else self._check(chunk, self._number)
            if checked:
                yield checked
        self._chunks = None
        if self._event:
            yield bytes(self._event)

    def _check(self, chunk: bytes, number: int) -> bytes:
        """Return the events that end with a chunk, and the rest of it if its event is too long."""
        event = self._event
        start = max(0, len(event) - _END_LENGTH + 1)
        event += chunk
        checked: list[bytes] = []
        begin = 0
        while end := _end_of_event(event, max(begin, start)):
            with memoryview(event) as view, view[begin:end] as part:
                checked.append(_replace(bytes(part), number))
            begin = end
        if len(event) - begin > self._most:
            checked.append(bytes(event[begin:]))
            begin = len(event)
        del event[:begin]
        return b"".join(checked)

    async def aclose(self) -> None:
        chunks, self._chunks = self._chunks, None
        try:
            if chunks is not None:
                with anyio.move_on_after(DRAIN_SECONDS):
                    async for _ in chunks:
                        pass
        finally:
            await self._inner.aclose()


def _end_of_event(events: bytearray, start: int) -> int:
    """Return the position behind the first empty line from a position on, 0 if there is none."""
    line_end = events.find(b"\n", start)
    while line_end >= 0:
        for next_line in (b"\n", b"\r\n"):
            if events.startswith(next_line, line_end + 1):
                return line_end + 1 + len(next_line)
        line_end = events.find(b"\n", line_end + 1)
    # Lines may end with CR alone. Two bytes are found much more slowly than one.
    if events.find(b"\r", start) < 0:
        return 0
    return end + 2 if (end := events.find(b"\r\r", start)) >= 0 else 0


def _replace(event: bytes, number: int) -> bytes:
    """Return an event, or the error in its place if it answers another request than the one with a number."""
    # Most servers write the id right before or behind the result. The time to parse an answer grows with it.
    head, tail = event[:_HEAD].partition(b"data:")[2].lstrip(), event[-_HEAD:].rstrip()
    if head.startswith(b'{"jsonrpc":"2.0","id":%d,' % number) or (
        head.startswith(b"{") and tail.endswith(b'"id":%d}' % number)
    ):
        return event
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data = b"\n".join(_DATA.findall(lines))
    if not data or _may_answer(data, number):
        return event
    error = {"code": PARSE_ERROR, "message": NO_ANSWER}
    message = {"jsonrpc": "2.0", "id": number, "error": error}
    return b"data: %b\n\n" % orjson.dumps(message)


def _may_answer(data: bytes, number: int) -> bool:
    """Whether a message answers the request with a number, or is no answer with an id."""
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return True
    message = cast("JSON", value) if isinstance(value, dict) else {}
    answer_id: object = message.get("id")
    if "method" in message or not message.keys() & {"result", "error"} or answer_id is None:
        return True
    return isinstance(answer_id, str | int) and number_of(answer_id) == number
