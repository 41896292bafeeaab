"""The parts that tests of nodes on several machines share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

from .gateway_process import JSON, Running, kill

KEY = "a-key-of-the-tests-with-32-characters"
LEASE_SECONDS = 4.0

Start: TypeAlias = Callable[..., AbstractContextManager[Running]]
"""`with start("a") as running` runs a node with the data folder `a`; further arguments are settings of `[cluster]`,
and `more` has other sections."""


class Nodes:
    """Nodes of one database. Call stop() at the end."""

    def __init__(self, start: Start, more: JSON, **cluster: Any) -> None:
        self._start = start
        self._options = {"more": more, **cluster}
        self._stacks: dict[str, ExitStack] = {}
        self.running: dict[str, Running] = {}

    def run(self, name: str) -> None:
        stack = self._stacks[name] = ExitStack()
        self.running[name] = stack.enter_context(self._start(name, **self._options))

    def kill(self, name: str) -> None:
        kill(self.running.pop(name))
        self._stacks.pop(name).close()

    def stop(self) -> None:
        for stack in self._stacks.values():
            stack.close()


__all__ = ["KEY", "LEASE_SECONDS", "Nodes", "Start"]
