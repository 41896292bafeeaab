"""Clients that are lighter than the server they load: processes that send prepared requests over kept connections.

`python -m benchmarks.browser.callers` is one process: it reads its orders as a line of JSON, connects, answers each line
`SECONDS` with its calls in that time, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from ..plan import ROOT, python

PROCESSES = 4
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Calls(NamedTuple):
    """The calls of all processes in a time, those that failed, and the processor seconds that the processes used."""

    done: int
    failed: int
    cpu: float


class Callers:
    """The processes of `calling`; each sends the requests of its sessions, one at a time per session."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    async def run(self, seconds: float) -> Calls:
        """Have all processes call for some seconds at once."""
        for process in self._processes:
            await _write(process, str(seconds))
        answers = [json.loads(await _line(process)) for process in self._processes]
        return Calls(*map(sum, zip(*answers, strict=True)))


@asynccontextmanager
async def calling(port: int, requests: Sequence[bytes]) -> AsyncGenerator[Callers]:
    """Start processes that share the requests, one connection for each; they end with the block."""
    shares = [requests[number::PROCESSES] for number in range(min(PROCESSES, len(requests)))]
    processes: list[Process] = []
    try:
        for share in shares:
            command = python("-m", "benchmarks.browser.callers")
            processes.append(await anyio.open_process(command, cwd=ROOT, stderr=None))
            orders = {"port": port, "requests": [request.decode() for request in share]}
            await _write(processes[-1], json.dumps(orders))
        for process in processes:
            assert await _line(process) == "ready"
        yield Callers(processes)
    finally:
        with anyio.CancelScope(shield=True):
            for process in processes:
                await process.aclose()


async def _write(process: Process, line: str) -> None:
    assert process.stdin is not None
    await process.stdin.send(line.encode() + b"\n")


async def _line(process: Process) -> str:
    """Return the next line; a process writes none before the one before it was read."""
    assert process.stdout is not None
    text = ""
    async for part in TextReceiveStream(process.stdout):
        text += part
        if text.endswith("\n"):
            return text.strip()
    raise RuntimeError("a process of callers has ended")


class _Connection(asyncio.Protocol):
    """Sends one request again as soon as its answer has come, until a point in time."""

    def __init__(self, request: bytes) -> None:
        self.done = self.failed = 0
        self._request = request
        self._buffer = b""
        self._until = 0.0
        self._transport: asyncio.Transport | None = None
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def run(self, until: float) -> None:
        """Call until a time of `time.monotonic`, at least once."""
        assert self._transport is not None
        self.done, self.failed, self._until = 0, 0, until
        self._finished = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        await self._finished

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(_HEAD_END)
        if not found or not _is_whole(head, body):
            return
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200") or b'"isError":true' in body:
            self.failed += 1
        else:
            self.done += 1
        if time.monotonic() < self._until:
            assert self._transport is not None
            self._transport.write(self._request)
        else:
            self._finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._finished.done():
            self._finished.set_exception(exc or ConnectionError("the server has closed"))


def _is_whole(head: bytes, body: bytes) -> bool:
    """Return whether an answer has come to its end; the answer of a long call is a stream of chunks."""
    _, has_length, rest = head.lower().partition(_LENGTH)
    if has_length:
        return len(body) >= int(rest.partition(b"\r\n")[0])
    return body.endswith(_LAST_CHUNK)


async def _main() -> None:
    orders: dict[str, Any] = json.loads(sys.stdin.readline())
    loop = asyncio.get_running_loop()
    connections = [
        (
            await loop.create_connection(
                lambda request=request: _Connection(request.encode()), "127.0.0.1", orders["port"]
            )
        )[1]
        for request in orders["requests"]
    ]
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        used, until = time.process_time(), time.monotonic() + float(line)
        await asyncio.gather(*(connection.run(until) for connection in connections))
        done = sum(connection.done for connection in connections)
        failed = sum(connection.failed for connection in connections)
        print(json.dumps([done, failed, time.process_time() - used]), flush=True)


if __name__ == "__main__":
    anyio.run(_main)
