"""The programs that a soak starts, with their logs, and the small disks that it can fill."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import anyio
import anyio.to_thread
import httpx2

from ..plan import COUNTER, Era, python
from ..processes import START_SECONDS, accepting, free_port

DISK_BYTES: Final = 512 * 2**20
FULL_SECONDS: Final = 4.0
STOP_SECONDS: Final = 30.0
BLOCK: Final = bytes(2**20)
UPSTREAM: Final = "upstream"
"""The name of the log of the HTTP upstream."""


class Programs:
    """Programs whose output goes to a file each, `logs/NAME.log`. close() kills those that still run. Idempotent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self._files: list[IO[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def log(self, name: str) -> Path:
        """Return the file with the output of the programs of this name."""
        return self.logs / f"{name}.log"

    def last_lines(self, name: str) -> str:
        """Return the last three lines of a log in one line."""
        text = self.log(name).read_text(encoding="utf-8", errors="replace")
        return " / ".join(text.splitlines()[-3:])

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        file = self.log(name).open("ab")
        self._files.append(file)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=self.folder,
            env={**os.environ, **(env or {})},
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for file in self._files:
            file.close()


class HttpUpstream:
    """The counting server over HTTP, which all nodes use. Each call is appended to `truth` before it runs."""

    def __init__(self, programs: Programs, truth: Path, era: Era = "legacy") -> None:
        self.port = free_port()
        self._era = era
        self._programs = programs
        self._truth = truth
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        serve = ("--transport", "http", "--port", str(self.port), "--era", self._era)
        self._process = self._programs.start(
            UPSTREAM, python(COUNTER, *serve, "--log", self._truth)
        )
        await accepting(self.port, self._process)

    async def kill(self) -> None:
        """Kill it. Idempotent."""
        if self._process is not None:
            self._process.kill()
            await wait_for(self._process)


async def serving(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a node that was just started serves; its port is open before that, and before it minds a signal."""
    await accepting(port, process)
    async with httpx2.AsyncClient(timeout=START_SECONDS, trust_env=False) as client:
        await client.get(f"http://127.0.0.1:{port}/health")


async def wait_for(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a process, None (and kill it) when it does not end in time."""
    try:
        return await anyio.to_thread.run_sync(process.wait, STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        return None


def mount_disk(path: Path) -> bool:
    """Mount a small disk on a folder. Return False where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    options = f"size={DISK_BYTES},mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmount_disk(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], check=False)


async def fill_disk(path: Path) -> None:
    """Use up all the space of a disk for a few seconds."""
    ballast = path / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        await anyio.sleep(FULL_SECONDS)
    finally:
        ballast.unlink()
