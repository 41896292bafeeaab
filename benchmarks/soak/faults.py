"""The faults of a soak: kills of every kind of process, graceful stops, and a full disk."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

import anyio
import psutil

from .deployment import Deployment
from .findings import Findings
from .orphans import command_of, living

PAUSE_SECONDS: Final = (0.3, 2.5)
FULL_SECONDS: Final = 4.0
BLOCK: Final = bytes(2**20)

NETWORK: Final = "--utility-sub-type=network.mojom.NetworkService"
PARTS: Final[dict[str, Callable[[str], bool]]] = {
    "stdio upstream": lambda line: "quick.py" in line,
    "browser": lambda line: "--remote-debugging-pipe" in line and "--type=" not in line,
    "network process": lambda line: NETWORK in line,
    "driver": lambda line: "run-driver" in line,
    "stdio node": lambda line: "statehold.server" in line and " serve " not in line,
}
"""The command lines of each kind of process that the soak finds below itself and kills."""


class Faults:
    """Injects one fault after the other; the order depends on the seed alone."""

    def __init__(self, deployment: Deployment, findings: Findings, random: Random) -> None:
        self._deployment = deployment
        self._findings = findings
        self._random = random
        self._kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            **{kind: partial(self._kill_part, kind) for kind in PARTS},
            "node": self._kill_node,
            "graceful stop": self._stop_node,
            "HTTP upstream": self._kill_upstream,
        }
        if deployment.has_disk:
            self._kinds["full disk"] = self._fill_disk

    async def run(self, seconds: float) -> None:
        """Inject faults for some seconds, each kind equally often, in rounds of random order."""
        ends = anyio.current_time() + seconds
        while True:
            for kind in self._random.sample(sorted(self._kinds), len(self._kinds)):
                await anyio.sleep(self._random.uniform(*PAUSE_SECONDS))
                if anyio.current_time() >= ends:
                    return
                if await self._kinds[kind]():
                    self._findings.faults[kind] += 1

    async def _kill_part(self, kind: str) -> bool:
        candidates = [process for process in living() if PARTS[kind](command_of(process))]
        if not candidates:
            return False
        victim = self._random.choice(sorted(candidates, key=lambda process: process.pid))
        with suppress(psutil.NoSuchProcess):
            victim.kill()
        return True

    async def _kill_node(self) -> bool:
        node = self._random.choice(self._deployment.nodes)
        assert node.process is not None
        node.process.kill()
        node.process.wait()
        await self._deployment.start_node(node)
        return True

    async def _stop_node(self) -> bool:
        node = self._random.choice(self._deployment.nodes)
        await self._deployment.stop_node(node)
        await self._deployment.start_node(node)
        return True

    async def _kill_upstream(self) -> bool:
        assert self._deployment.upstream is not None
        self._deployment.upstream.kill()
        self._deployment.upstream.wait()
        await self._deployment.start_upstream()
        return True

    async def _fill_disk(self) -> bool:
        ballast = self._deployment.data / "ballast"
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
        return True
