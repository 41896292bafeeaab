"""A relay of TCP connections that keeps what passes it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Relay:
    """Passes connections to `port` on to `target`. `sent` is what its clients sent, a buffer for each connection."""

    port: int
    target: int = 0
    sent: list[bytearray] = field(default_factory=list[bytearray])
    received: list[bytearray] = field(default_factory=list[bytearray])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sent.append(bytearray())
        self.received.append(bytearray())
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            await asyncio.gather(
                _copy(reader, there_writer, self.sent[-1]),
                _copy(there_reader, writer, self.received[-1]),
            )
        finally:
            writer.close()
            there_writer.close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: bytearray
) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(1 << 16):
            passed += part
            writer.write(part)
            await writer.drain()
    writer.close()


@contextmanager
def relay(port: int = 0) -> Generator[Relay]:
    """Run a relay in a thread. Set its `target` before a client connects."""
    listener = socket.create_server(("127.0.0.1", port))
    running, loop = Relay(listener.getsockname()[1]), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(running._serve, sock=listener)  # pyright: ignore[reportPrivateUsage]
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(5)
    try:
        yield running
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server, loop), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _stop(server: asyncio.Server, loop: asyncio.AbstractEventLoop) -> None:
    server.close()
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["Relay", "relay"]
