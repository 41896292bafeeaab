"""A screen without a monitor, for browsers with a window."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Screen:
    """An X server of a test's own."""

    display: str

    @classmethod
    @contextmanager
    def on(cls) -> Generator[Screen]:
        """Run an X server until the block ends; the server chooses its number."""
        reading, writing = os.pipe()
        command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1400x900x24"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            [*command, "-nolisten", "tcp"], pass_fds=[writing], stdout=quiet, stderr=quiet
        )
        os.close(writing)
        try:
            with os.fdopen(reading) as output:
                number = output.readline().strip()
            assert number, f"Xvfb ended with exit code {process.wait(5)}"
            yield cls(f":{number}")
        finally:
            process.terminate()
            process.wait(10)


__all__ = ["Screen"]
