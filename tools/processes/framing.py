"""The two pipes of a child process as the SDK's streams: one JSON-RPC message per line, in both directions.

Both are asyncio protocols, so a message needs no thread or task. Memory is bounded: lines have a maximum length, and
reading pauses while too many messages wait for the consumer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import select
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import anyio.lowlevel
import orjson
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from .call_log import CallLog

QUEUE_BYTES: Final = 4 * 2**20
"""Bytes that may wait for the consumer; reading pauses while there are more."""

NOISE_LINES: Final = 8
NOISE_LENGTH: Final = 200
BURST: Final = 64
"""Messages received in a row before other tasks run, so that a flood of messages does not block the loop."""


def encode(message: JSONRPCMessage) -> bytes:
    """Return a message as a line. Every JSON value is written exactly, also integers beyond 64 bits."""
    fields: dict[str, Any] = {"jsonrpc": "2.0"}
    match message:
        case JSONRPCRequest(id=number, method=method, params=params):
            fields |= {"id": number, "method": method}
            if params is not None:
                fields["params"] = params
        case JSONRPCNotification(method=method, params=params):
            fields["method"] = method
            if params is not None:
                fields["params"] = params
        case JSONRPCResponse(id=number, result=result):
            fields |= {"id": number, "result": result}
        case JSONRPCError(id=number, error=error):
            fields |= {"id": number, "error": error.model_dump(exclude_none=True)}
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


_ANSWER_ID: Final = re.compile(
    rb'^\s*\{(?:"jsonrpc":\s*"2.0",\s*)?"id":\s*(\d+)|"id":\s*(\d+)\s*\}\s*$'
)
"""The id at the beginning or the end of an answer that is not valid JSON. Our ids are numbers."""


_ANSWER_START: Final = re.compile(
    rb"""\{(?<![ \t=:,>(\["'`]\{)\s*"(?:jsonrpc|id|result|error)"\s*:"""
)
"""The beginning of an answer. After a blank or one of these signs it may be a quotation, as in the log of a proxy.

The brace comes first, so that the search skips long lines without one.
"""
_QUOTED_START: Final = re.compile(rb"""\{\s*"(?:jsonrpc|id|result|error)"\s*:""")
"""The same, also of a quotation."""
_ANSWER_MEMBERS: Final = frozenset({"jsonrpc", "result", "error"})
GLUED_STARTS: Final = 8
"""Places in a line that may be the beginning of an answer; later ones are not tried."""

QUOTED_SECONDS: Final = 0.5
"""Seconds after which an answer at the end of a text is no quotation, because the answer itself did not come."""

_DECODER: Final = json.JSONDecoder()

Ids = set[int | str]


def decode(line: bytes) -> JSONRPCMessage | None:
    """Return the message of a line, None if the line is not JSON-RPC.

    Text after a message and before an answer is dropped: some servers print without a newline. An answer that a line of a
    log may quote is none; see find_quoted(). An invalid answer becomes an error answer, so that its caller does not wait for
    ever. Half of a surrogate pair, which JavaScript servers send when they truncate a text, becomes a replacement character.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _repair(line) if line.lstrip()[:1] == b"{" else _find_answer(line)


def _repair(line: bytes) -> JSONRPCMessage | None:
    number: object = None
    try:
        value, rest = _first_value(line)
    except (ValueError, RecursionError):
        is_answer = _ANSWER_START.match(line.lstrip()) and b'"method"' not in line[:200]
        if is_answer and (match := _ANSWER_ID.search(line)):
            number = int(match[1] or match[2])
    else:
        if (answer := _find_answer(rest.encode())) is not None:
            return answer
        with suppress(ValueError):
            return _message_of(value)
        members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        if "method" not in members and members.keys() & _ANSWER_MEMBERS:
            number = members.get("id")
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    fault = ErrorData(code=INTERNAL_ERROR, message="The server sent an answer that is no JSON-RPC.")
    return JSONRPCError(jsonrpc="2.0", id=number, error=fault)


def _find_answer(line: bytes) -> JSONRPCMessage | None:
    """Return the answer in a line that begins with text. Nothing else: a log may quote our own requests."""
    for start in itertools.islice(_ANSWER_START.finditer(line), GLUED_STARTS):
        with suppress(ValueError, RecursionError):
            message = _message_of(_first_value(line[start.start() :])[0])
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                return message
    return None


def find_quoted(line: bytes) -> tuple[bytes, JSONRPCResponse | JSONRPCError] | None:
    """Return the text of a line and the answer at its end, which the text may quote or may be printed before."""
    for start in itertools.islice(_QUOTED_START.finditer(line), GLUED_STARTS):
        with suppress(ValueError, RecursionError):
            value, rest = _first_value(line[start.start() :])
            message = None if rest.strip() else _message_of(value)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                return line[: start.start()], message
    return None


def _first_value(line: bytes) -> tuple[object, str]:
    """Return the JSON value at the beginning of a line, and the text after it."""
    text = line.decode("utf-8", "replace").lstrip()
    value, end = _DECODER.raw_decode(text)
    return value, text[end:]


def _message_of(value: object) -> JSONRPCMessage:
    repaired = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return jsonrpc_message_adapter.validate_json(repaired, by_name=False)


def _readable(line: bytes) -> str:
    """Return the beginning of a line; one in UTF-16, which has a zero beside each letter, says so."""
    line = line[:NOISE_LENGTH]
    text = line.replace(b"\0", b"").decode("utf-8", "replace").strip()
    return f"{text} (in UTF-16 instead of UTF-8)" if line.count(0) * 3 > len(line) else text


class ClosingStream:
    """A stream of the SDK that closes when its `async with` block ends."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.aclose()
        return None


class MessageStream(ClosingStream):
    """A read stream of the SDK that iterates over what receive() returns, until that raises EndOfStream."""

    async def receive(self) -> SessionMessage | Exception:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class StdoutReader(MessageStream, asyncio.Protocol):
    """The stdout of a child as the SDK's read stream, for one consumer. It ends with the pipe or at an overlong line.

    `beginning` is the part of the first line that another process has read already. `awaited` has the ids of the requests
    without an answer; the writer adds to it. An answer that a text may quote waits QUOTED_SECONDS for another one. `hide`
    takes secrets out of each line.
    """

    def __init__(
        self,
        line_bytes: int,
        on_fault: Callable[[str], None],
        *,
        beginning: bytes = b"",
        awaited: Ids | None = None,
        hide: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._awaited = Ids() if awaited is None else awaited
        self._hide = hide
        self._quoted: dict[int | str, bytes] = {}
        """The answers at the end of a text, by id, which may be quotations."""
        self._line_bytes = line_bytes
        self._on_fault = on_fault
        self._transport: asyncio.ReadTransport | None = None
        self._partial: list[bytes] = [beginning] if beginning else []
        self._partial_size = len(beginning)
        self._queue: deque[bytes] = deque()
        self._queue_size = 0
        self._is_paused = False
        self._burst_size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._discarding = False
        self.has_ended = False
        self.noise_at = -math.inf
        """When the last text that is no JSON-RPC arrived, on the clock of the event loop."""
        self.noise_tail: deque[str] = deque(maxlen=NOISE_LINES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        head, *lines = data.split(b"\n")
        if not lines:
            self._add_partial(head)
            return
        self._add_line(b"".join((*self._partial, head)) if self._partial else head)
        self._partial, self._partial_size = [], 0
        last = lines.pop()
        for line in lines:
            self._add_line(line)
        if last:
            self._add_partial(last)
        if self._queue_size > QUEUE_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _add_partial(self, data: bytes) -> None:
        self._partial_size += len(data)
        if self._partial_size <= self._line_bytes:
            self._partial.append(data)
            if not self._partial[0].startswith(b"{"):
                self.noise_at = asyncio.get_running_loop().time()
            return
        self._partial = []
        self._on_fault(
            f"wrote a line of more than {self._line_bytes} bytes without a newline to stdout"
        )
        self.discard()
        self._end()

    def _add_line(self, line: bytes) -> None:
        if line.startswith(BOM_UTF8):
            line = line.removeprefix(BOM_UTF8)
        line = self._hide(line)
        if line[:1] == b"{" or line.lstrip()[:1] == b"{" or _QUOTED_START.search(line):
            self._queue.append(line)
            self._queue_size += len(line)
        elif line.strip():
            self._add_noise(line)

    def _add_noise(self, line: bytes) -> None:
        self.noise_at = asyncio.get_running_loop().time()
        self.noise_tail.append(_readable(line))

    def noise(self) -> str:
        """Return the last two lines that were not JSON-RPC; the last may have no end yet. Empty if there was none."""
        partial = _readable(self._hide(b"".join(self._partial)))
        return "\n".join([line for line in (*self.noise_tail, partial) if line][-2:])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end()

    def _end(self) -> None:
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def discard(self) -> None:
        """Discard further output, so that a child that is blocked on writing can exit."""
        self._discarding = True
        if (partial := b"".join(self._partial)).strip()[:1] not in (b"", b"{"):
            self._add_noise(self._hide(partial))
        self._partial, self._partial_size = [], 0
        self._queue.clear()
        self._queue_size = 0
        self._resume()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close the pipe now."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    async def receive(self) -> SessionMessage | Exception:
        while True:
            if self._burst_size >= BURST:
                self._burst_size = 0
                await anyio.lowlevel.checkpoint()
            while self._queue:
                line = self._queue.popleft()
                self._queue_size -= len(line)
                if self._is_paused and self._queue_size <= QUEUE_BYTES // 2:
                    self._resume()
                self._burst_size += 1
                message = decode(line)
                if message is not None:
                    self._record_answer(message)
                    return SessionMessage(message)
                self._add_noise(line if (text := self._hold_quoted(line)) is None else text)
            if self.has_ended:
                raise anyio.EndOfStream
            self._burst_size = 0
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _record_answer(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            # Some servers return the id as text.
            is_text = isinstance(message.id, str) and message.id.isdecimal()
            self._awaited.discard(int(message.id or 0) if is_text else message.id or 0)

    def _hold_quoted(self, line: bytes) -> bytes | None:
        """Hold an awaited answer at the end of a line that is no message, and return the text before it."""
        if not self._awaited or (found := find_quoted(line)) is None:
            return None
        text, message = found
        if (number := message.id) is None or number not in self._awaited:
            return None
        self._quoted[number] = line[len(text) :]
        asyncio.get_running_loop().call_later(QUOTED_SECONDS, self._release_quoted, number)
        return text

    def _release_quoted(self, number: int | str) -> None:
        line = self._quoted.pop(number, None)
        if line is not None and number in self._awaited:
            self._queue.append(line)
            self._queue_size += len(line)
            self._wake()

    async def aclose(self) -> None:
        self.discard()
        self._end()


class StdinWriter(ClosingStream, asyncio.BaseProtocol):
    """The stdin of a child as the SDK's write stream. close() ends the child's stdin.

    Requests wait while the pipe is full; at most one line of them is held here. `log` gets a note of each request in
    `operations` and of each answer just before it is written, and a mark while a line is written in parts.
    """

    def __init__(
        self, on_end: Callable[[], None], *, log: CallLog | None = None, awaited: Ids | None = None
    ) -> None:
        self._on_end = on_end
        self._awaited = Ids() if awaited is None else awaited
        self._log = log
        self._fd = -1
        self._transport: asyncio.WriteTransport | None = None
        self._can_write: asyncio.Event = asyncio.Event()
        self._can_write.set()
        self.has_ended = False
        self.unsent: set[int | str] = set()
        """The ids of the requests that could not be written."""
        self.operations: dict[int | str, str] = {}
        """The operation ids of calls that are yet to be written, by the id of their request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        # So that resume_writing() is called when all is written.
        self._transport.set_write_buffer_limits(high=0)
        self._fd = transport.get_extra_info("pipe").fileno()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()
        if self._log is not None:
            self._log.end_line()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.has_ended = True
        self._can_write.set()
        self._on_end()

    async def send(self, item: SessionMessage) -> None:
        # Only requests wait for the child to read; a cancellation must not delay its caller.
        while not self._can_write.is_set() and isinstance(item.message, JSONRPCRequest):
            await self._can_write.wait()
        if self.has_ended or self._transport is None or self._transport.is_closing():
            if isinstance(item.message, JSONRPCRequest):
                self.unsent.add(item.message.id)
            raise anyio.BrokenResourceError
        data, log = encode(item.message), self._log
        if isinstance(item.message, JSONRPCRequest):
            self._awaited.add(item.message.id)
        elif isinstance(item.message, JSONRPCNotification) and item.message.params:
            # That of a cancellation.
            self._awaited.discard(item.message.params.get("requestId", ""))
        if log is None:
            self._write(self._transport, data)
            return
        position = log.position
        # The kernel writes a shorter line as a whole or not at all.
        if len(data) > select.PIPE_BUF:
            log.begin_line(position)
        self._note(log, item.message)
        self._write(self._transport, data)
        if self._transport.get_write_buffer_size():
            log.begin_line(position)
        else:
            log.end_line()

    def _note(self, log: CallLog, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            operation_id = self.operations.pop(message.id, None)
            if operation_id is not None:
                log.record_call(int(message.id), operation_id)
        elif not isinstance(message, JSONRPCNotification):
            log.record_answered(message.id or 0)

    def end_open_line(self) -> None:
        """End a line that a killed process has begun. The child gets one malformed line, also if only its end is missing."""
        if self._log is not None and self._log.has_open_line and self._transport is not None:
            self._write(self._transport, b"#\n")
            if not self._transport.get_write_buffer_size():
                self._log.end_line()

    def _write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Write a line at once if the pipe has room: uvloop would do it later, and a kill before that would lose it."""
        if not transport.get_write_buffer_size():
            # If the pipe is full or broken, the transport finds that out.
            with suppress(OSError):
                data = data[os.write(self._fd, data) :]
        if data:
            transport.write(data)

    def close(self) -> None:
        """Close the pipe once all accepted messages are written."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close the pipe now."""
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        """Accept no more messages. ChildProcess closes the pipe itself."""
        self.has_ended = True
        self._can_write.set()
