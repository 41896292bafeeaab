"""The ledger: a record on disk of the child processes, so that the next start can end those that outlived a crash.

One small file per child below `<data>/children/<node>/`. A process that crashes leaves its files behind; the next start
kills the processes that they record, unless their keeper runs, and removes the files. Start times tell them from other
processes with the same pid.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import secrets
import signal
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from . import procfs
from .keeper import KeeperClient
from .watchdog import Watchdog
from .workdir import private_folder

logger = logging.getLogger("statehold.upstream")

FOREIGN_FILE_SECONDS: Final = 7 * 86_400.0
"""Age in seconds after which the file of a container that shares the folder counts as abandoned."""

KILL_SECONDS: Final = 2.0
MAX_REMAINING_KEPT: Final = 100
"""Most entries in `Ledger.remaining`."""


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """The content of one file of the ledger; the field names are the keys of its JSON."""

    pid: int
    """The pid of the leader; also the number of its process group."""
    started: str | None
    mark: str
    service: str
    owner_pid: int
    owner_started: str | None
    machine: str


@dataclass(frozen=True, slots=True)
class KilledChild:
    """A child that outlived its Statehold process, and the pids that the sweep killed for it."""

    service: str
    pid: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemainingProcesses:
    """The processes that a child left running when it exited and that were then killed: program names by pid."""

    service: str
    processes: Mapping[int, str]


class Ledger:
    """The children of this process. It lives as long as the process; call aclose() after all connections are closed.

    `folder` is the data folder; None keeps no files. With `watchdog`, a small shell process kills the children if this
    process is killed. With `keeper`, children of sessions are held beyond the end of this process.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        node: str = "local",
        watchdog: bool = True,
        keeper: KeeperClient | None = None,
    ) -> None:
        self.keeper = keeper
        self._root = None if folder is None else folder / "children"
        self._folder = None if self._root is None else self._root / _safe(node)
        self._instance = f"{_safe(node)}:{secrets.token_hex(8)}-"
        self._numbers = itertools.count(1)
        self._children: dict[int, ChildRecord] = {}
        self._ending: set[int] = set()
        """The children that are being ended."""
        self._survived: dict[str, list[ChildRecord]] = {}
        """The ended children of each service whose daemons may run on for others of its children."""
        self.remaining: deque[RemainingProcesses] = deque(maxlen=MAX_REMAINING_KEPT)
        """The most recent processes that children left running."""
        self._watchdog = Watchdog(self._instance) if watchdog else None
        self._pid = os.getpid()
        self._machine = procfs.machine_id()
        self._own_start_time: str | None = None

    def __repr__(self) -> str:
        return f"<Ledger children={len(self._children)}>"

    @property
    def children(self) -> tuple[ChildRecord, ...]:
        return tuple(self._children.values())

    @property
    def private_folder(self) -> Path | None:
        """The data folder, in which nothing is shared; None if no files are kept."""
        return None if self._root is None else self._root.parent

    @property
    def watchdog_pid(self) -> int | None:
        return self._watchdog.pid if self._watchdog is not None else None

    def mark(self, *, kept: bool = False) -> str:
        """Return a new mark: the value of procfs.MARK in the environment of the next child.

        The watchdog kills the processes with marks of this instance, but not those of children that the keeper holds. It
        runs before the child starts, because a child can be killed by its mark alone until add() records it.
        """
        if self._watchdog is not None and not kept:
            self._watchdog.start()
        return f"{'kept-' if kept else ''}{self._instance}{next(self._numbers)}"

    def add(self, pid: int, mark: str, service: str, *, parent: int | None = None) -> None:
        """Record a child. Blocks for about 100 microseconds: an await between start and record could lose the child.

        `parent` is the pid of the keeper if that is its parent. Then the child may live until the keeper ends.
        """
        if self._watchdog is not None and parent is None:
            self._watchdog.add(pid)
        if self._own_start_time is None:
            self._own_start_time = procfs.start_time(self._pid)
        child = ChildRecord(
            pid=pid,
            started=procfs.start_time(pid),
            mark=mark,
            service=service,
            owner_pid=self._pid if parent is None else parent,
            owner_started=self._own_start_time if parent is None else procfs.start_time(parent),
            machine=self._machine,
        )
        self._children[pid] = child
        if self._folder is not None:
            _write_record(self._folder, child)

    def begin_end(self, pid: int) -> tuple[list[str], bool]:
        """Record that a child is being ended. Return the marks whose processes end with it, and whether shared daemons stay.

        They stay while another child of the service runs, which may use them, and end with the last one.
        """
        child = self._children.get(pid)
        if child is None:
            return [], False
        self._ending.add(pid)
        is_last = not any(
            other.service == child.service and other.pid not in self._ending
            for other in self._children.values()
        )
        survived = self._survived.setdefault(child.service, [])
        if not is_last:
            survived.append(child)
            return [child.mark], True
        del self._survived[child.service]
        for other in survived:
            self._forget_file(other.pid)
        return [child.mark, *(other.mark for other in survived)], False

    def remove(self, pid: int) -> None:
        """Remove the record of a child whose process group has ended."""
        child = self._children.pop(pid, None)
        self._ending.discard(pid)
        if child is None:
            return
        if self._watchdog is not None:
            self._watchdog.remove(pid)
        if child not in self._survived.get(child.service, ()):
            # The next start ends the daemons of the others after a crash.
            self._forget_file(pid)

    def _forget_file(self, pid: int) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / f"{pid}.json").unlink()

    def record_remaining(self, service: str, processes: Mapping[int, str]) -> None:
        self.remaining.append(RemainingProcesses(service, processes))

    async def sweep(self) -> list[KilledChild]:
        """Kill the children of crashed Statehold processes and remove their records. Called once, at the start."""
        if self._root is None:
            return []
        return await anyio.to_thread.run_sync(self._sweep, self._root)

    def _sweep(self, root: Path) -> list[KilledChild]:
        killed_children: list[KilledChild] = []
        for file in sorted(root.glob("*/*.json")):
            child = _read_record(file)
            if child is None:
                _unlink(file)
            elif child.machine != self._machine:
                if (
                    not _same_boot(child.machine, self._machine)
                    or _age(file) > FOREIGN_FILE_SECONDS
                ):
                    _unlink(file)
            elif not _is_running(child.owner_pid, child.owner_started):
                if pids := _kill_remaining(child):
                    killed_children.append(KilledChild(child.service, child.pid, pids))
                    logger.warning("killed %d left-over processes of %s", len(pids), child.service)
                _unlink(file)
        return killed_children

    async def aclose(self) -> None:
        """Stop the watchdog, which kills the children that still run, and leave the keeper. May be called twice."""
        if self.keeper is not None:
            await self.keeper.aclose()
        if self._watchdog is not None:
            await self._watchdog.aclose()
        survived = [child for children in self._survived.values() for child in children]
        self._survived.clear()
        if survived:
            marks = [child.mark for child in survived]
            await anyio.to_thread.run_sync(procfs.kill_marked, marks)
        for pid in [*self._children, *(child.pid for child in survived)]:
            self._children.pop(pid, None)
            if self._folder is not None:
                _unlink(self._folder / f"{pid}.json")
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".") or "_"


def _write_record(folder: Path, child: ChildRecord) -> None:
    target = folder / f"{child.pid}.json"
    draft = target.with_suffix(".new")
    try:
        private_folder(folder)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            json.dump(asdict(child), out)
        draft.replace(target)
    except OSError as error:
        # The watchdog and the parent-death signal still end the child.
        logger.warning("child %d is not in the ledger: %s", child.pid, error.strerror)


def _read_record(file: Path) -> ChildRecord | None:
    try:
        return ChildRecord(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _unlink(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return 0.0


def _same_boot(machine: str, other: str) -> bool:
    return machine.split(" ")[0] == other.split(" ")[0]


def _is_running(pid: int, start_time: str | None) -> bool:
    return start_time is not None and procfs.start_time(pid) == start_time


def _kill_remaining(child: ChildRecord) -> tuple[int, ...]:
    """Kill the group of a child if its leader is still the recorded process, and every process with the child's mark."""
    pids: set[int] = set()
    if _is_running(child.pid, child.started) and child.pid != os.getpgrp():
        pids.update(procfs.group_members(child.pid))
        procfs.signal_group(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_SECONDS
        while _is_running(child.pid, child.started) and time.monotonic() < deadline:
            time.sleep(0.01)
    pids.update(procfs.kill_marked([child.mark]))
    return tuple(sorted(pids))
