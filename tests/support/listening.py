"""Programs that listen: started for a test, stopped by their own pid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def run_listening(command: list[str], *, timeout: float = 30.0) -> Generator[int]:
    """Run a program that prints `{"port": N}` and yield the port; the program is stopped at the end, by its own pid."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{command} ended with exit code {process.wait(timeout)} before it listened"
        yield int(json.loads(line)["port"])
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def run_until_line(command: list[str], mark: str) -> Generator[str]:
    """Run a program that says on stderr or stdout where it listens; yield the address after `mark`."""
    pipe = subprocess.PIPE
    # A separate session, so that the program's children end with it.
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if mark in line)
            yield line.partition(mark)[2].strip()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


__all__ = ["run_listening", "run_until_line"]
