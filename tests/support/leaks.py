"""The children, open files and tasks that a test leaves behind."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psutil

from .waiting import until

Task: TypeAlias = asyncio.Task[Any]


@dataclass
class Leaks:
    """The resources that this process held when the test began. `check()` fails if any were added since."""

    children: set[int]
    files: set[str]
    tasks: set[Task] = field(default_factory=set[Task])

    @classmethod
    def baseline(cls) -> Leaks:
        return cls(children=set(_children()), files=set(_files()), tasks=set(_tasks()))

    async def check(self, *, within: float = 5.0) -> None:
        """Wait until nothing is left over, at most `within` seconds, then fail naming it."""
        with suppress(TimeoutError):
            await until(lambda: not self.left(), within=within)
        self.check_now()

    def check_now(self) -> None:
        left = self.left()
        assert not left, "left behind:\n  " + "\n  ".join(left)

    def left(self) -> list[str]:
        """Describe every child process, open file and task that was not there at the beginning."""
        new_children = [v for k, v in _children().items() if k not in self.children]
        new_files = [f"fd {k} -> {v}" for k, v in _files().items() if k not in self.files]
        new_tasks = [v for k, v in _tasks().items() if k not in self.tasks]
        return [*new_children, *new_files, *new_tasks]


def _children() -> dict[int, str]:
    children: dict[int, str] = {}
    for child in psutil.Process().children(recursive=True):
        try:
            children[child.pid] = (
                f"pid {child.pid} ({child.status()}) {' '.join(child.cmdline())[:120]}"
            )
        except psutil.NoSuchProcess:
            continue
    return children


def _files() -> dict[str, str]:
    """Open descriptors by number and target, so that a number that was used again counts."""
    files: dict[str, str] = {}
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return {str(n): "?" for n in range(psutil.Process().num_fds())}
    for number in numbers:
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if not target.startswith("/proc/"):
            files[f"{number} {target}"] = target
    return files


def _tasks() -> dict[Task, str]:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return {}
    names = {task: f"task {task.get_name()} {task.get_coro()}" for task in tasks if not task.done()}
    return {task: name for task, name in names.items() if "TestRunner" not in name}


__all__ = ["Leaks"]
