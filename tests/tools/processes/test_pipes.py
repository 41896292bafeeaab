"""Pipes that an event loop closes while other threads open files."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from statehold.tools.processes.piped_process import PipeEnd

pytestmark = pytest.mark.anyio

CYCLES = """
import asyncio, os, threading
import uvloop
from statehold.tools.processes.piped_process import PipeEnd

over = threading.Event()
failed = []

def read():
    while not over.is_set():
        try:
            with open("/proc/self/stat", "rb") as file:
                file.read()
        except OSError as error:
            failed.append(error)

async def main():
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    try:
        for _ in range(3000):
            reading, writing = os.pipe()
            end = PipeEnd.of(os.fdopen(reading, "rb", 0))
            transport, _ = await loop.connect_read_pipe(asyncio.Protocol, end)
            transport.close()
            await asyncio.sleep(0)
            os.close(writing)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed, failed

uvloop.run(main())
"""
"""With a file object instead of the PipeEnd, libuv aborts it at the latest after some hundred pipes."""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="uvloop and /proc")
def test_closing_pipes_closes_no_file_of_another_thread() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", CYCLES], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0, completed.stderr[-3000:]


async def test_a_pipe_is_closed_with_its_transport() -> None:
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as sender:
        end = PipeEnd.of(os.fdopen(reading, "rb", 0))
        stream = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), end
        )
        sender.write(b"hello")
        assert await stream.readexactly(5) == b"hello"
        transport.close()
        # asyncio closes it in the next iteration of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(end.fileno())
        with pytest.raises(BrokenPipeError):
            sender.write(b"more")
