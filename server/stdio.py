"""MCP over this process's stdin and stdout, on the event loop.

The SDK's own transport passes every line to a worker thread three times, and cannot be stopped while it reads. The event
loop serves pipes, sockets and terminals with half the work. On Windows it cannot, so the SDK's transport is used there.
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

    The SDK cancels the running calls when its read stream ends. So the stream ends only when end() is called, which gives
    running calls time to finish.
    """

    def __init__(self, read_stream: Any, write_stream: Any) -> None:
        self.read_stream = read_stream
        self.write_stream = write_stream
        self.client_closed = anyio.Event()
        """Set when the client has closed its side."""
        self.tools_listed = anyio.Event()
        """Set when the first request for the tool list was answered."""
        self._list_ids: set[Any] = set()
        self._unanswered_ids: set[Any] = set()
        self._answer_sent = anyio.Event()
        self._end_requested = anyio.Event()

    async def wait_answered(self, within: float) -> None:
        """Wait until all received requests are answered, or `within` seconds have passed."""
        with anyio.move_on_after(within):
            while self._unanswered_ids:
                await self._answer_sent.wait()

    async def end(self) -> None:
        """End the read stream, after the last answers are written."""
        await self.wait_answered(ANSWER_SECONDS)
        self._end_requested.set()

    async def wait_ended(self) -> None:
        await self._end_requested.wait()

    def note_received(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._unanswered_ids.add(message.id)
            if message.method == "tools/list" and not self.tools_listed.is_set():
                self._list_ids.add(message.id)
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            # A cancelled request is not answered.
            self._note_answered((message.params or {}).get("requestId"))

    def note_sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._note_answered(message.id)

    def _note_answered(self, request: object) -> None:
        if not isinstance(request, str | int):
            return
        self._unanswered_ids.discard(request)
        if request in self._list_ids:
            self._list_ids.clear()
            self.tools_listed.set()
        self._answer_sent.set()
        self._answer_sent = anyio.Event()


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[Stdio]:
    """Yield the streams of the client that started this process.

    Meanwhile descriptor 1 is stderr and 0 is empty, so that no print and no child process can mix text into the messages.
    """
    if sys.platform == "win32":
        async with (
            stdio_server() as (read_stream, write_stream),
            _relay(_SdkMessages(read_stream, write_stream)) as stdio,
        ):
            yield stdio
        return
    stdin_fd, stdout_fd = _take_over_stdio()
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


def _take_over_stdio() -> tuple[int, int]:
    sys.stdout.flush()
    stdin_fd, stdout_fd = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return stdin_fd, stdout_fd


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _lines(fd: int) -> AsyncGenerator[asyncio.StreamReader]:
    """Yield a reader of a pipe, a terminal or a file."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_LIMIT)
    if _is_pipe(fd):
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
        # Reading a file never waits for a writer, so it does not block the event loop for long.
        while data := os.read(fd, 65_536):
            lines.feed_data(data)
        lines.feed_eof()
        yield lines


@asynccontextmanager
async def _writer(fd: int) -> AsyncGenerator[Callable[[bytes], Awaitable[None]]]:
    """Yield a function that writes bytes to a pipe, a terminal or a file and returns when they are written."""
    if not _is_pipe(fd):

        async def write_file(data: bytes) -> None:
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[os.write(fd, unwritten) :]

        yield write_file
        return
    loop = asyncio.get_running_loop()
    sink, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, PipeEnd(os.dup(fd))
    )
    # With a limit of 0, drain() waits until everything is written, so no message is lost when the process ends.
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

    def __init__(self, read_stream: Any, write_stream: Any) -> None:
        self._read_stream = read_stream
        self._write_stream = write_stream

    async def receive(self) -> SessionMessage | Exception | None:
        try:
            return await self._read_stream.receive()
        except anyio.EndOfStream:
            return None

    async def send(self, message: SessionMessage) -> None:
        await self._write_stream.send(message)


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
            return await self._refuse(refusal(line, error), error)
        if isinstance(message, types.JSONRPCNotification) and b'"id"' in line:
            # The SDK takes a request whose id is null for a notification.
            answer = invalid_request(json.loads(line))
            if answer is not None:
                return await self._refuse(answer, ValueError(answer.error.message))
        return SessionMessage(message)

    async def _refuse(
        self, answer: types.JSONRPCError | None, error: Exception
    ) -> Exception | None:
        """Send the answer, if any. Return the error for the SDK, None if the client has closed stdout."""
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
    received, read_stream = create_context_streams[SessionMessage | Exception](0)
    write_stream, to_send = create_context_streams[SessionMessage](0)
    stdio, all_sent = Stdio(read_stream, write_stream), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, channel, received, stdio)
        tasks.start_soon(_send, channel, to_send, stdio, all_sent)
        yield stdio
        await write_stream.aclose()
        with anyio.move_on_after(ANSWER_SECONDS):
            await all_sent.wait()
        tasks.cancel_scope.cancel()


async def _receive(channel: _SdkMessages | _LineMessages, out: Any, stdio: Stdio) -> None:
    async with out, anyio.create_task_group() as tasks:

        async def receive_all() -> None:
            while (item := await channel.receive()) is not None:
                if isinstance(item, SessionMessage):
                    stdio.note_received(item.message)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The server may have ended before its client: then read to the end, and drop what comes.
                    await out.send(item)
            stdio.client_closed.set()

        tasks.start_soon(receive_all)
        await stdio.wait_ended()
        tasks.cancel_scope.cancel()


async def _send(
    channel: _SdkMessages | _LineMessages, messages: Any, stdio: Stdio, all_sent: anyio.Event
) -> None:
    client_reads = True
    try:
        async with messages:
            async for item in messages:
                try:
                    if client_reads:
                        await channel.send(item)
                except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The client has closed stdout. Drop answers until the end of stdin ends the process: if this stream
                    # were closed, each sender would get an error.
                    client_reads = False
                stdio.note_sent(item.message)
    finally:
        all_sent.set()


__all__ = ["Stdio", "stdio_streams"]
