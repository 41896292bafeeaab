"""A stdio Statehold whose lines a test writes and reads itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from .gateway_process import JSON, STATEHOLD, statehold


class Pipes:
    """A stdio Statehold whose lines the test writes and reads itself."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.out = BufferedByteReceiveStream(process.stdout)

    async def send(self, *messages: JSON) -> None:
        for message in messages:
            await self.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def line(self) -> JSON:
        with anyio.fail_after(60):
            return json.loads(await self.out.receive_until(b"\n", 1 << 20))

    async def answer(self, number: int) -> JSON:
        while (message := await self.line()).get("id") != number or "method" in message:
            pass
        return message

    async def tool(self, number: int, tool: str, **arguments: Any) -> JSON:
        await self.send(tool_call(number, tool, **arguments))
        return (await self.answer(number))["result"]

    async def rest(self) -> list[JSON]:
        """Read to the end."""
        messages: list[JSON] = []
        with anyio.fail_after(60):
            while True:
                try:
                    messages.append(json.loads(await self.out.receive_until(b"\n", 1 << 20)))
                except anyio.IncompleteRead:
                    assert not self.out.buffer
                    return messages


def tool_call(number: int, tool: str, /, **arguments: Any) -> JSON:
    return {
        "id": number,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


HELLO: list[JSON] = [
    {
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
]


@asynccontextmanager
async def piped(
    config: Path, data: Path, *, as_installed: bool = False, hello: Sequence[JSON] = HELLO
) -> AsyncGenerator[Pipes]:
    """Run a stdio Statehold up to the end of its handshake, whose first message is a request with the id 0."""
    command = STATEHOLD if as_installed else statehold()
    command = [*command, "--config", str(config), "--data", str(data)]
    async with await anyio.open_process(command, stderr=subprocess.PIPE) as process:
        try:
            pipes = Pipes(process)
            await pipes.send(*hello)
            await pipes.answer(0)
            yield pipes
        finally:
            if process.returncode is None:
                process.kill()


__all__ = ["HELLO", "Pipes", "piped", "tool_call"]
