"""MCP over this process's stdin and stdout, on the event loop.

The SDK's own transport passes every line to a worker thread three times, and cannot be stopped while it reads. The event
loop serves pipes, sockets and terminals with half the work. On Windows it cannot, so the SDK's transport is used there.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from ..tools.processes.piped_process import PipeEnd
from .client_streams import LINE_LIMIT, ClientStreams, LineMessages, client_streams


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[ClientStreams]:
    """Yield the streams of the client that started this process.

    Meanwhile descriptor 1 is stderr and 0 is empty, so that no print and no child process can mix text into the messages.
    """
    if sys.platform == "win32":
        async with (
            stdio_server() as (read_stream, write_stream),
            client_streams(_SdkMessages(read_stream, write_stream)) as streams,
        ):
            yield streams
        return
    stdin_fd, stdout_fd = _take_over_stdio()
    try:
        async with (
            _lines(stdin_fd) as lines,
            _writer(stdout_fd) as write,
            client_streams(LineMessages(lines, write)) as streams,
        ):
            yield streams
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
