"""Viewers without a browser: processes that read the pictures of a session and throw them away.

`python -m benchmarks.console.viewers URL COUNT`, with the cookie on stdin, reads until stdin ends, and prints the numbers of
the pictures and of their bytes as JSON.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx2

from ..plan import ROOT, python
from .serving import Serving, operator

MODULE = "benchmarks.console.viewers"
COOKIE = "__Host-statehold"


@dataclass(slots=True)
class Pictures:
    """The pictures that viewers got, all together."""

    frames: int = 0
    bytes: int = 0


@asynccontextmanager
async def viewers(
    server: Serving, session_id: str, count: int, *, fps: float = 10
) -> AsyncGenerator[Pictures]:
    """Watch a session as long as the block runs; the numbers of its pictures are there after the block."""
    found = Pictures()
    if not count:
        yield found
        return
    async with operator(server.data, server.url) as client:
        url = f"{server.url}/api/v1/sessions/{session_id}/frames?fps={fps:g}"
        async with await anyio.open_process(
            python("-m", MODULE, url, str(count)), cwd=ROOT, stdin=subprocess.PIPE, stderr=None
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdin.send(f"{client.cookie}\n".encode())
            output = b""
            while not output.endswith(b"ready\n"):
                output += await process.stdout.receive()
            yield found
            await process.stdin.aclose()
            output = b"".join([part async for part in process.stdout])
            numbers = json.loads(output)
            found.frames, found.bytes = numbers["frames"], numbers["bytes"]


async def main(url: str, count: int) -> None:
    found = Pictures()
    cookie = await anyio.to_thread.run_sync(sys.stdin.readline)
    headers = {"cookie": f"{COOKIE}={cookie.strip()}"}
    first = anyio.Event()
    async with (
        httpx2.AsyncClient(timeout=60, trust_env=False) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(count):
            tasks.start_soon(_watch, client, url, headers, found, first)
        await first.wait()
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
        tasks.cancel_scope.cancel()
    print(json.dumps({"frames": found.frames, "bytes": found.bytes}))


async def _watch(
    client: httpx2.AsyncClient,
    url: str,
    headers: dict[str, str],
    found: Pictures,
    first: anyio.Event,
) -> None:
    async with client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        pending = bytearray()
        async for part in response.aiter_bytes():
            pending += part
            while len(pending) >= 4 and len(pending) >= (end := 4 + _number(pending, 0)):
                if end > 8 + _number(pending, 4):
                    found.frames += 1
                    found.bytes += end
                    first.set()
                del pending[:end]


def _number(message: bytearray, at: int) -> int:
    return struct.unpack_from(">I", message, at)[0]


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
