"""The two pipes of a child process as the SDK's streams: one JSON-RPC message per line, in both directions.

Both are asyncio protocols, so a message needs no thread or task. Memory is bounded: lines have a maximum length, and
reading pauses while too many messages wait for the consumer.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
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
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ...sessions.json_codec import JSON
from .call_log import CallLog
from .decoding import QUOTED_START, decode, find_quoted
from .piped_process import LONG_LINE, widen_pipe

LINE_LIMIT: Final = 64 << 20
"""Bytes of one message of a client or node at most; a longer one ends the connection."""
QUEUE_BYTES: Final = 4 * 2**20
"""Bytes that may wait for the consumer; reading pauses while there are more."""
BURST: Final = 64
"""Messages received in a row before other tasks run, so that a flood of messages does not block the loop."""

NOISE_LINES: Final = 8
NOISE_LENGTH: Final = 200


QUOTED_SECONDS: Final = 0.5
"""Seconds after which an answer at the end of a text is no quotation, because the answer itself did not come."""

Ids = set[int | str]
_MEMBERS: Final = {"jsonrpc", "id", "result"}


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


def _plain_answer(line: bytes) -> tuple[int, JSON] | None:
    """Return the id and the result in a line, None if it is anything else than such an answer, or has large numbers."""
    try:
        message: Any = orjson.loads(line)
    except ValueError:
        return None
    if type(message) is not dict or message.keys() != _MEMBERS or message["jsonrpc"] != "2.0":
        return None
    number, result = cast("tuple[object, object]", (message["id"], message["result"]))
    if type(number) is not int or not isinstance(result, dict):
        return None
    members = cast("JSON", result)
    return None if _has_large_floats(members) else (number, members)


def _has_large_floats(value: JSON) -> bool:
    """Whether orjson may have rounded an integer beyond 64 bits."""
    values: list[object] = [value]
    for item in values:
        if isinstance(item, dict):
            values += cast("JSON", item).values()
        elif isinstance(item, list):
            values += cast("list[object]", item)
        elif isinstance(item, float) and not -(2.0**63) < item < 2.0**63:
            return True
    return False


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


class LineReader(MessageStream, asyncio.Protocol):
    """The lines of a pipe or socket. It ends at the end of the pipe, or at a line of more than `line_bytes`.

    A subclass gets each line in _add_line(), and queues with _queue_line() what is for the consumer. `beginning` is the part
    of the first line that was read before.
    """

    def __init__(self, line_bytes: int, *, beginning: bytes = b"") -> None:
        self._line_bytes = line_bytes
        self._transport: asyncio.ReadTransport | None = None
        self._partial: list[bytes] = [beginning] if beginning else []
        self._partial_size = len(beginning)
        self._queue: deque[bytes] = deque()
        self._queue_size = 0
        self._is_paused = False
        self._is_wide = False
        self._burst_size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._discarding = False
        self.has_ended = False

    @property
    def _is_parked(self) -> bool:
        """Whether the consumer waits for the next line, and so has handled all earlier ones."""
        return self._waiter is not None and not self._queue and not self._waiter.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if b"\n" not in data:
            self._add_partial(data)
            return
        head, *lines = data.split(b"\n")
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

    def _add_partial(self, data: bytes) -> None:
        self._partial_size += len(data)
        if self._partial_size > LONG_LINE and not self._is_wide and self._transport is not None:
            self._is_wide = True
            widen_pipe(self._transport)
        if self._partial_size <= self._line_bytes:
            self._partial.append(data)
            return
        self._partial = []
        self._report_overlong_line()
        self.discard()
        self._end()

    def _add_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _report_overlong_line(self) -> None:
        """Do nothing: the end of the stream is all that a reader has to know."""

    def _queue_line(self, line: bytes) -> None:
        self._queue.append(line)
        self._queue_size += len(line)
        self._wake()

    async def _next_line(self) -> bytes:
        """Wait for the next line. Raises EndOfStream."""
        if self._burst_size >= BURST:
            self._burst_size = 0
            await anyio.lowlevel.checkpoint()
        while not self._queue:
            if self.has_ended:
                raise anyio.EndOfStream
            self._burst_size = 0
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._queue.popleft()
        self._queue_size -= len(line)
        if self._is_paused and self._queue_size <= QUEUE_BYTES // 2:
            self._resume()
        self._burst_size += 1
        return line

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
        """Discard further input, so that a writer that is blocked can go on."""
        self._discarding = True
        self._partial, self._partial_size = [], 0
        self._queue.clear()
        self._queue_size = 0
        self._resume()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def aclose(self) -> None:
        self.discard()
        self._end()


class StdoutReader(LineReader):
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
        super().__init__(line_bytes, beginning=beginning)
        self._awaited = Ids() if awaited is None else awaited
        self._hide = hide
        self._quoted: dict[int | str, bytes] = {}
        """The answers at the end of a text, by id, which may be quotations."""
        self._on_fault = on_fault
        self.take_result: Callable[[int, JSON], bool] = lambda number, result: False
        """Takes the result of a request by its id, or returns False: then receive() returns the answer.

        It is called inside data_received(), but only while the consumer has handled all earlier messages.
        """
        self.noise_at = -math.inf
        """When the last text that is no JSON-RPC arrived, on the clock of the event loop."""
        self.noise_tail: deque[str] = deque(maxlen=NOISE_LINES)

    def _add_partial(self, data: bytes) -> None:
        super()._add_partial(data)
        if self._partial and not self._partial[0].startswith(b"{"):
            self.noise_at = asyncio.get_running_loop().time()

    def _report_overlong_line(self) -> None:
        self._on_fault(
            f"wrote a line of more than {self._line_bytes} bytes without a newline to stdout"
        )

    def _add_line(self, line: bytes) -> None:
        if line.startswith(BOM_UTF8):
            line = line.removeprefix(BOM_UTF8)
        line = self._hide(line)
        if self._is_parked and (answer := _plain_answer(line)) and self.take_result(*answer):
            self._awaited.discard(answer[0])
        elif line[:1] == b"{" or line.lstrip()[:1] == b"{" or QUOTED_START.search(line):
            self._queue_line(line)
        elif line.strip():
            self._add_noise(line)

    def _add_noise(self, line: bytes) -> None:
        self.noise_at = asyncio.get_running_loop().time()
        self.noise_tail.append(_readable(line))

    def noise(self) -> str:
        """Return the last two lines that were not JSON-RPC; the last may have no end yet. Empty if there was none."""
        partial = _readable(self._hide(b"".join(self._partial)))
        return "\n".join([line for line in (*self.noise_tail, partial) if line][-2:])

    def discard(self) -> None:
        """Discard further output, so that a child that is blocked on writing can exit."""
        if (partial := b"".join(self._partial)).strip()[:1] not in (b"", b"{"):
            self._add_noise(self._hide(partial))
        super().discard()

    def abort(self) -> None:
        """Close the pipe now."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    async def receive(self) -> SessionMessage | Exception:
        while True:
            line = await self._next_line()
            message = decode(line)
            if message is not None:
                self._record_answer(message)
                return SessionMessage(message)
            self._add_noise(line if (text := self._hold_quoted(line)) is None else text)

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
            self._queue_line(line)


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
