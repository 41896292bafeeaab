"""A screen without a monitor, and a simulated user with keyboard and mouse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

LOOKS: Final = 5


@dataclass(frozen=True)
class Screen:
    """An X server of a test's own. Its one window is used by a person with keyboard and mouse."""

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

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "DISPLAY": self.display}

    def keys(self, *names: str) -> None:
        """Press keys, one after the other: `ctrl+l`, `Return`."""
        self._do("key", *names)

    def type(self, text: str) -> None:
        self._do("type", text)

    def click(self, x: int, y: int) -> None:
        self._do("mousemove", str(x), str(y), "click", "1")

    def go(self, url: str) -> None:
        """Type an address into the address bar."""
        self.keys("ctrl+l")
        self.type(url)
        self.keys("Return")

    def focus(self) -> None:
        """Point at the window that a page is in, which then gets the keys: there is no window manager."""
        search = ("search", "--sync", "--onlyvisible", "--name", " - Chromium", "windowfocus")
        for _ in range(LOOKS):
            # It gives up when a window goes that it is just looking at.
            with suppress(subprocess.CalledProcessError):
                return self._do(*search)
        return self._do(*search)

    def _do(self, *words: str) -> None:
        subprocess.run(["xdotool", *words], env=self.env, check=True, timeout=20)


__all__ = ["Screen"]
