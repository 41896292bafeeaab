"""MCP over this process's stdin and stdout, on the event loop.

The SDK's own transport hands every line to a worker thread three times. Pipes and sockets can be served by the loop itself,
for half the work; anything else (a file, Windows) goes to the SDK.
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
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

LINE_LIMIT = 64 << 20
"""Bytes of one message at most; a longer one ends the connection."""


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the (read, write) streams of the client that started this process.

    While open, descriptor 1 leads to stderr and 0 to nothing, so no stray print and no child can get between the messages.
    """
    if not (_loopable(0) and _loopable(1)):
        async with stdio_server() as streams:
            yield streams
        return
    wire_in, wire_out = _claim()
    try:
        async with _served(wire_in, wire_out) as streams:
            yield streams
    finally:
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        for fd in (wire_in, wire_out):
            os.set_blocking(fd, True)
            os.close(fd)


def _loopable(fd: int) -> bool:
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _claim() -> tuple[int, int]:
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return wire_in, wire_out


@asynccontextmanager
async def _served(wire_in: int, wire_out: int) -> AsyncGenerator[tuple[Any, Any]]:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_LIMIT)
    source, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(os.dup(wire_in), "rb", 0)
    )
    sink, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(wire_out), "wb", 0)
    )
    writer = asyncio.StreamWriter(sink, protocol, None, loop)
    read_send, read = create_context_streams[SessionMessage | Exception](0)
    write, write_receive = create_context_streams[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, lines, read_send)
            tasks.start_soon(_send, write_receive, writer)
            yield read, write
            tasks.cancel_scope.cancel()
    finally:
        source.close()
        sink.close()


async def _receive(lines: asyncio.StreamReader, out: Any) -> None:
    async with out:
        while line := await _line(lines):
            try:
                message: Any = SessionMessage(
                    types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                )
            except ValidationError as error:
                message = error
            await out.send(message)


async def _line(lines: asyncio.StreamReader) -> bytes:
    try:
        return await lines.readline()
    except (ValueError, ConnectionError):
        return b""


async def _send(messages: Any, writer: asyncio.StreamWriter) -> None:
    async with messages:
        async for sent in messages:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                writer.write(text.encode() + b"\n")
                await writer.drain()
            except ConnectionError:
                return


__all__ = ["stdio_streams"]
