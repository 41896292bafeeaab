"""A viewer of its own process: `python -m benchmarks.console.viewer_process URL COUNT`, with the cookie on stdin.

It reads until stdin ends, and prints the numbers of the pictures and of their bytes as JSON.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass

import anyio
import httpx2

COOKIE = "__Host-statehold"


@dataclass(slots=True)
class Count:
    """The pictures that all viewers got."""

    frames: int = 0
    bytes: int = 0


async def main(url: str, count: int) -> None:
    found = Count()
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
    found: Count,
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
