"""The process of the relays, on the standard library alone; relay.py starts it.

It reads a command per line from stdin, `{"link": NAME, "to": ADDRESS}` or `{"link": NAME, "flow": FLOW}`, answers each with
`{"port": PORT}`, and ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any, Final

CHUNK: Final = 1 << 16


class _Link:
    """One port and the connections through it."""

    def __init__(self) -> None:
        self._to = ""
        self._refuses = False
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def lead(self, to: str) -> None:
        self._to = to
        self._cut()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.set_flow("open")

    @property
    def port(self) -> int:
        assert self._server is not None, "the link leads nowhere yet"
        return self._server.sockets[0].getsockname()[1]

    def set_flow(self, flow: str) -> None:
        self._refuses = flow == "refused"
        for gate, stalled in ((self._up, "stalled up"), (self._down, "stalled down")):
            if flow in (stalled, "stalled"):
                gate.clear()
            else:
                gate.set()
        if self._refuses:
            self._cut()

    def _cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # A cancelled task of a server is a logged error.
            with suppress(asyncio.CancelledError, OSError):
                if not self._refuses:
                    await self._relay(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._to.startswith("/"):
            far_reader, far_writer = await asyncio.open_unix_connection(self._to)
        else:
            host, _, port = self._to.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, far_writer, self._up))
                tasks.create_task(_pump(far_reader, writer, self._down))
        except* OSError:
            pass  # one side closed its connection
        finally:
            far_writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
) -> None:
    """Pass bytes on while the gate is open; raise ConnectionError at the end of either side."""
    while True:
        data = await reader.read(CHUNK)
        await gate.wait()
        if not data:
            raise ConnectionError
        writer.write(data)
        await writer.drain()


async def _serve() -> None:
    links: dict[str, _Link] = {}
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        command: dict[str, Any] = json.loads(line)
        link = links.setdefault(command["link"], _Link())
        if "to" in command:
            await link.lead(command["to"])
        else:
            link.set_flow(command["flow"])
        print(json.dumps({"port": link.port}), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
