"""MCP over this process's stdin and stdout, on the event loop.

The SDK's own transport passes every line to a worker thread three times, and cannot be stopped while it reads. The event
loop serves pipes, sockets and terminals with half the work. On Windows it cannot, so the SDK's transport is used there.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ..tools.processes.framing import LineReader, encode
from ..tools.processes.piped_process import PipeEnd
from .client_streams import ClientStreams, FileWriter, LineWriter


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[ClientStreams]:
    """Yield the streams of the client that started this process.

    Meanwhile descriptor 1 is stderr and 0 is empty, so that no print and no child process can mix text into the messages.
    """
    if sys.platform == "win32":
        async with _sdk_streams() as streams:
            yield streams
        return
    stdin_fd, stdout_fd = _take_over_stdio()
    try:
        async with _writer(stdout_fd) as writer:
            streams = ClientStreams(writer)
            async with _reading(stdin_fd, streams.read_stream):
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
async def _reading(fd: int, lines: LineReader) -> AsyncGenerator[None]:
    """Pass on what a pipe, a terminal or a file brings while the block runs."""
    loop = asyncio.get_running_loop()
    if _is_pipe(fd):
        source, _ = await loop.connect_read_pipe(lambda: lines, PipeEnd(os.dup(fd)))
        try:
            yield
        finally:
            source.close()
    elif os.isatty(fd):

        def readable() -> None:
            if data := os.read(fd, 65_536):
                lines.data_received(data)
            else:
                loop.remove_reader(fd)
                lines.eof_received()

        loop.add_reader(fd, readable)
        try:
            yield
        finally:
            loop.remove_reader(fd)
    else:
        # Reading a file never waits for a writer, so it does not block the event loop for long.
        while data := os.read(fd, 65_536):
            lines.data_received(data)
        lines.eof_received()
        yield


@asynccontextmanager
async def _writer(fd: int) -> AsyncGenerator[LineWriter]:
    if not _is_pipe(fd):
        yield FileWriter(fd)
        return
    loop = asyncio.get_running_loop()
    sink, writer = await loop.connect_write_pipe(LineWriter, PipeEnd(os.dup(fd)))
    try:
        yield writer
    finally:
        sink.close()


@asynccontextmanager
async def _sdk_streams() -> AsyncGenerator[ClientStreams]:
    """Yield the streams over the SDK's own transport, whose messages are passed on as lines."""
    async with (
        stdio_server() as (read_stream, write_stream),
        anyio.create_task_group() as tasks,
    ):
        streams = ClientStreams(_SdkWriter(write_stream))

        async def read() -> None:
            async for item in read_stream:
                if isinstance(item, SessionMessage):
                    streams.read_stream.data_received(encode(item.message))
            streams.read_stream.eof_received()

        tasks.start_soon(read)
        yield streams
        await write_stream.aclose()
        tasks.cancel_scope.cancel()


class _SdkWriter(LineWriter):
    """Writes lines to a write stream of the SDK."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    async def write(self, data: bytes) -> None:
        await self._stream.send(SessionMessage(jsonrpc_message_adapter.validate_json(data)))
