"""Viewers without a browser: a process that reads the pictures of a session and throws them away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from ..plan import ROOT, python
from .serving import Serving, operator

MODULE = "benchmarks.console.viewer_process"


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
