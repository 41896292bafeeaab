"""Clients that are lighter than the server they load: processes that send prepared requests over kept connections.

`python -m benchmarks.callers` is one process: it reads its orders as a line of JSON, connects, answers each line
`SECONDS` with its calls in that time, and ends with its input.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from .plan import ROOT, python

PROCESSES = 4
READ_BYTES = 1 << 16
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
async def calling(
    port: int, requests: Sequence[bytes], *, processes: int = PROCESSES
) -> AsyncGenerator[Callers]:
    """Start processes that share the requests, one connection for each; they end with the block."""
    count = min(processes, len(requests))
    shares = [requests[number::count] for number in range(count)]
    running: list[Process] = []
    try:
        for share in shares:
            command = python("-m", "benchmarks.callers")
            running.append(await anyio.open_process(command, cwd=ROOT, stderr=None))
            orders = {"port": port, "requests": [request.decode() for request in share]}
            await _write(running[-1], json.dumps(orders))
        for process in running:
            assert await _line(process) == "ready"
        yield Callers(running)
    finally:
        with anyio.CancelScope(shield=True):
            for process in running:
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


class _Connection:
    """Sends one request again as soon as its answer has come."""

    def __init__(self, port: int, request: bytes) -> None:
        self.done = self.failed = 0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._buffer = b""

    def send(self) -> None:
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Read what has come. Return whether the answer is whole."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed")
        self._buffer += data
        head, found, body = self._buffer.partition(_HEAD_END)
        if not found or not _is_whole(head, body):
            return False
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200") or b'"isError":true' in body:
            self.failed += 1
        else:
            self.done += 1
        return True


def _is_whole(head: bytes, body: bytes) -> bool:
    """Return whether an answer has come to its end; the answer of a long call is a stream of chunks."""
    _, has_length, rest = head.lower().partition(_LENGTH)
    if has_length:
        return len(body) >= int(rest.partition(b"\r\n")[0])
    return body.endswith(_LAST_CHUNK)


def _call(connections: Sequence[_Connection], until: float) -> None:
    """Call on all connections until a time of `time.monotonic`, at least once on each."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.done = connection.failed = 0
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        calling = len(connections)
        while calling:
            for key, _ in selector.select():
                connection: _Connection = key.data
                if not connection.receive():
                    continue
                if time.monotonic() < until:
                    connection.send()
                else:
                    calling -= 1


def _main() -> None:
    orders: dict[str, Any] = json.loads(sys.stdin.readline())
    requests: list[str] = orders["requests"]
    connections = [_Connection(orders["port"], request.encode()) for request in requests]
    print("ready", flush=True)
    for line in sys.stdin:
        used = time.process_time()
        _call(connections, time.monotonic() + float(line))
        done = sum(connection.done for connection in connections)
        failed = sum(connection.failed for connection in connections)
        print(json.dumps([done, failed, time.process_time() - used]), flush=True)


if __name__ == "__main__":
    _main()
