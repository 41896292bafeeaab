"""Programs that listen: started for a test, stopped by their own pid."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def listening(command: list[str], *, timeout: float = 30.0) -> Generator[int]:
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


__all__ = ["listening"]
