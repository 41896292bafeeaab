"""A process that holds sessions of a data folder, and the output of commands on that folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from statehold.sessions.core import Core
from statehold.sessions.node import Node
from statehold.sessions.records import Principal
from statehold.sessions.registry import Registry
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions

from .fork_server import ForkedProgram, ForkServer

HOLDER = Path(__file__).parent / "holder.py"


@dataclass
class Output:
    """The output of one run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Output]


@dataclass
class Holder:
    """A running process that holds sessions."""

    process: ForkedProgram
    node: str
    sessions: dict[str, str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextmanager
def holding(data: Path, *names: str) -> Generator[Holder]:
    assert ForkServer.current is not None
    process = ForkServer.current.start(str(HOLDER), str(data), *names, piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            description = json.loads(process.stdout.readline())
            yield Holder(process, description["node"], description["sessions"])
            process.stdin.close()
            process.wait(20)
        finally:
            process.kill()
            process.wait(10)


def left_behind(data: Path, *names: str) -> dict[str, str]:
    """Make sessions that no process holds: the one that made them was killed."""
    with holding(data, *names) as held:
        held.kill()
    return held.sessions


def create_paused(data: Path, *names: str) -> dict[str, str]:
    """Make sessions that no process holds: the one that made them has ended in order."""

    async def make() -> dict[str, str]:
        async with (
            SQLStore.sqlite(data) as store,
            Node(store, data, address="", clock=time.time) as node,
            Registry(Core.create(store, node, {})) as registry,
        ):
            ids: dict[str, str] = {}
            for name in names:
                owner, _, short = name.rpartition("/")
                principal = Principal(subject=owner or "local")
                ids[short] = (await registry.create(principal, CreationOptions(name=short))).id
            return ids

    return anyio.run(make)


def one_line(output: Output) -> str:
    assert output.err.count("\n") == 1
    assert output.err.startswith("statehold: ")
    return output.err
