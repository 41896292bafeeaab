"""A command of the operator's that runs once: a text in on stdin, a text out on stdout."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import Process

from . import procfs

OUTPUT_BYTES: Final = 16 << 20
"""Most bytes of output that are read."""


class CommandFailed(ValueError):
    """Raised when a command cannot be run, fails, or exceeds a bound. The message holds nothing of its input and output."""


async def run_command(
    command: Sequence[str],
    *,
    seconds: float,
    data: bytes = b"",
    output_bytes: int = OUTPUT_BYTES,
) -> str:
    """Run a command with the environment of this process and without a shell, and return its output.

    It and the processes that it started are killed after `seconds`, and when the caller is cancelled.

    Raises:
        CommandFailed: It cannot be run, fails, takes too long, or writes too much or no text.
    """
    try:
        process = await anyio.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Its messages may hold secrets.
            stderr=subprocess.DEVNULL,
            env=dict(os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"it cannot be run: {error.strerror}") from None
    async with process:
        try:
            with anyio.fail_after(seconds):
                output = await _exchange(process, data, output_bytes)
                status = await process.wait()
        except TimeoutError:
            raise CommandFailed(f"it did not end within {seconds:g} seconds") from None
        finally:
            # Also after its end: a process that it left behind keeps the pipe open.
            procfs.signal_group(process.pid, signal.SIGKILL)
    if status != 0:
        raise CommandFailed(f"it ended with exit code {status}")
    try:
        return output.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandFailed("its output is no text in UTF-8") from None


async def _exchange(process: Process, data: bytes, output_bytes: int) -> bytes:
    """Write the input while the output is read; a command need not read its input."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    output = bytearray()

    async def write() -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            if data:
                await stdin.send(data)
            await stdin.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        async for part in stdout:
            output += part
            if len(output) > output_bytes:
                break
        tasks.cancel_scope.cancel()
    if len(output) > output_bytes:
        raise CommandFailed(f"its output has more than {output_bytes} bytes")
    return bytes(output)
