"""The network between nodes and their database, through relays that can be cut, one way too, or stalled."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ..plan import python

Flow: TypeAlias = Literal["open", "stalled", "stalled up", "stalled down", "refused"]
"""Stalled bytes arrive once the link is open again, as those of a network do that lost packets. Up is towards the server."""

PROGRAM: Final = Path(__file__).with_name("relay_process.py")
ANSWER_BYTES: Final = 1000


class Relays:
    """The links of a run, each with a port of its own, in one process. Commands may come from any task."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdout is not None
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._lock = anyio.Lock()

    async def lead(self, link: str, to: str) -> int:
        """Lead a link to a Unix socket or HOST:PORT from now on; return its port. Open connections are cut."""
        return await self._send({"link": link, "to": to})

    async def set_flow(self, link: str, flow: Flow) -> None:
        await self._send({"link": link, "flow": flow})

    async def _send(self, command: dict[str, str]) -> int:
        assert self._process.stdin is not None
        line = b""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._process.stdin.send(json.dumps(command).encode() + b"\n")
                line = await self._answers.receive_until(b"\n", ANSWER_BYTES)
        return json.loads(line)["port"]


@asynccontextmanager
async def run_relays() -> AsyncGenerator[Relays]:
    """Run the process of the relays while the block runs."""
    process = await anyio.open_process(
        python("-P", PROGRAM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
    )
    try:
        yield Relays(process)
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
