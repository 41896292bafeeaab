"""MCP over this process's stdin and stdout, on the event loop.

The SDK's own transport passes every line to a worker thread three times, and cannot be stopped while it reads. The event
loop itself serves pipes, sockets and terminals with half the work. On Windows it cannot, so the SDK's transport is used.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..tools.processes.pipes import PipeEnd
from ..tools.upstream.transports.framing import encode
from .protocol.refusals import invalid_request, refusal
from .sdk.access import create_context_streams

LINE_LIMIT = 64 << 20
"""Bytes of one message at most; a longer one ends the connection."""
ANSWER_SECONDS = 2.0
"""Seconds that writing the last answers may take when the process ends."""


class Stdio:
    """The streams of the client that started this process.

    The SDK cancels the running calls when its read stream ends. So the end is held back until end() is called, and the
    server finishes the calls that it can.
    """

    def __init__(self, read: Any, write: Any) -> None:
        self.read = read
        self.write = write
        self.left = anyio.Event()
        """Set when the client closed its side."""
        self._waiting: set[Any] = set()
        self._answered = anyio.Event()
        self._ended = anyio.Event()

    async def wait_answered(self, within: float) -> None:
        """Wait until all received requests are answered, at most `within` seconds."""
        with anyio.move_on_after(within):
            while self._waiting:
                await self._answered.wait()

    async def end(self) -> None:
        """End the read stream, when the last answers are written."""
        await self.wait_answered(ANSWER_SECONDS)
        self._ended.set()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def note_received(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._waiting.add(message.id)
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            # A request that was cancelled is not answered.
            self._note_answered((message.params or {}).get("requestId"))

    def note_sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._note_answered(message.id)

    def _note_answered(self, request: object) -> None:
        if not isinstance(request, str | int):
            return
        self._waiting.discard(request)
        self._answered.set()
        self._answered = anyio.Event()


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[Stdio]:
    """Yield the streams of the client that started this process.

    While open, descriptor 1 leads to stderr and 0 to nothing, so no stray print and no child can mix with the messages.
    """
    if sys.platform == "win32":
        async with stdio_server() as (read, write), _relay(_SdkMessages(read, write)) as stdio:
            yield stdio
        return
    stdin_fd, stdout_fd = _claim()
    try:
        async with (
            _lines(stdin_fd) as lines,
            _writer(stdout_fd) as write,
            _relay(_LineMessages(lines, write)) as stdio,
        ):
            yield stdio
    finally:
        os.dup2(stdin_fd, 0)
        os.dup2(stdout_fd, 1)
        for fd in (stdin_fd, stdout_fd):
            os.set_blocking(fd, True)
            os.close(fd)


def _claim() -> tuple[int, int]:
    sys.stdout.flush()
    stdin_fd, stdout_fd = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return stdin_fd, stdout_fd


def _pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _lines(fd: int) -> AsyncGenerator[asyncio.StreamReader]:
    """Yield a reader of a pipe, a terminal or a file."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_LIMIT)
    if _pipe(fd):
        source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), PipeEnd(os.dup(fd))
        )
        try:
            yield lines
        finally:
            source.close()
    elif os.isatty(fd):

        def readable() -> None:
            if data := os.read(fd, 65_536):
                lines.feed_data(data)
            else:
                loop.remove_reader(fd)
                lines.feed_eof()

        loop.add_reader(fd, readable)
        try:
            yield lines
        finally:
            loop.remove_reader(fd)
    else:
        # A file can be read at once, so reading it does not block the event loop for long.
        while data := os.read(fd, 65_536):
            lines.feed_data(data)
        lines.feed_eof()
        yield lines


@asynccontextmanager
async def _writer(fd: int) -> AsyncGenerator[Callable[[bytes], Awaitable[None]]]:
    """Yield a function that writes bytes to a pipe, a terminal or a file and returns when they are written."""
    if not _pipe(fd):

        async def write_file(data: bytes) -> None:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]

        yield write_file
        return
    loop = asyncio.get_running_loop()
    sink, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, PipeEnd(os.dup(fd))
    )
    # Then drain() returns when everything is written, so no sent message is lost at the end of the process.
    sink.set_write_buffer_limits(0)
    writer = asyncio.StreamWriter(sink, protocol, None, loop)

    async def write_pipe(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    try:
        yield write_pipe
    finally:
        sink.close()


class _SdkMessages:
    """The messages over the SDK's own transport."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    async def receive(self) -> SessionMessage | Exception | None:
        try:
            return await self._read.receive()
        except anyio.EndOfStream:
            return None

    async def send(self, message: SessionMessage) -> None:
        await self._write.send(message)


class _LineMessages:
    """The messages as lines, on the event loop."""

    def __init__(
        self, lines: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._lines = lines
        self._write = write

    async def receive(self) -> SessionMessage | Exception | None:
        try:
            line = await self._lines.readline()
        except (ValueError, ConnectionError):
            return None
        if not line:
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            return await self._refused(refusal(line, error), error)
        if isinstance(message, types.JSONRPCNotification) and b'"id"' in line:
            # The SDK takes a request whose id is null for a notification.
            answer = invalid_request(json.loads(line))
            if answer is not None:
                return await self._refused(answer, ValueError(answer.error.message))
        return SessionMessage(message)

    async def _refused(
        self, answer: types.JSONRPCError | None, error: Exception
    ) -> Exception | None:
        """Write the answer, where there is one. Return the error, None when the client reads no more."""
        if answer is not None:
            try:
                await self._write(encode(answer))
            except ConnectionError:
                return None
        return error

    async def send(self, message: SessionMessage) -> None:
        await self._write(encode(message.message))


@asynccontextmanager
async def _relay(channel: _SdkMessages | _LineMessages) -> AsyncGenerator[Stdio]:
    read_send, read = create_context_streams[SessionMessage | Exception](0)
    write, write_receive = create_context_streams[SessionMessage](0)
    stdio, written = Stdio(read, write), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, channel, read_send, stdio)
        tasks.start_soon(_send, channel, write_receive, stdio, written)
        yield stdio
        await write.aclose()
        with anyio.move_on_after(ANSWER_SECONDS):
            await written.wait()
        tasks.cancel_scope.cancel()


async def _receive(channel: _SdkMessages | _LineMessages, out: Any, stdio: Stdio) -> None:
    async with out, anyio.create_task_group() as tasks:

        async def receive_all() -> None:
            while (item := await channel.receive()) is not None:
                if isinstance(item, SessionMessage):
                    stdio.note_received(item.message)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The server may have ended before its client: read the rest up to the end, and drop it.
                    await out.send(item)
            stdio.left.set()

        tasks.start_soon(receive_all)
        await stdio.wait_ended()
        tasks.cancel_scope.cancel()


async def _send(
    channel: _SdkMessages | _LineMessages, messages: Any, stdio: Stdio, written: anyio.Event
) -> None:
    reads = True
    try:
        async with messages:
            async for item in messages:
                try:
                    if reads:
                        await channel.send(item)
                except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The client reads no more; the end of stdin shows that it is gone. Until then drop answers: with
                    # a closed stream, each sender would get an error.
                    reads = False
                stdio.note_sent(item.message)
    finally:
        written.set()


__all__ = ["Stdio", "stdio_streams"]
