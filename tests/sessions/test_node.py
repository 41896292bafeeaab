"""Nodes: a lock that proves life, claims that have one winner, and nothing acknowledged lost to a kill."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from support.databases import DatabaseServer
from support.fork_server import ForkServer
from support.process_exit import until_gone

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.lifecycle import Status
from statehold.sessions.node import LockFolder, Node
from statehold.sessions.records import NodeRecord, SessionFilter, SessionRecord, StateRecord
from statehold.sessions.store.sql import SQLStore

WORKER = Path(__file__).parent / "store" / "node_worker.py"


def clock() -> float:
    return 100.0


def started(store: SQLStore, folder: Path, name: str = "n_test") -> Any:
    return Node(store, folder, address="test", clock=clock, node_id=name)


async def add(
    store: SQLStore, session_id: str, node: str | None = None, *, status: Status = Status.IDLE
) -> None:
    record = SessionRecord(
        id=session_id,
        owner="local",
        status=status,
        node=node,
        created_at=1.0,
        used_at=1.0,
        status_at=1.0,
    )
    await store.create(record, StateRecord(session_id=session_id), [], per_owner=0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SQLStore]:
    async with SQLStore.sqlite(tmp_path) as opened:
        yield opened


async def test_a_node_holds_its_lock_until_it_leaves(store: SQLStore, tmp_path: Path) -> None:
    file = tmp_path / "nodes" / "n_test.lock"
    async with started(store, tmp_path) as node:
        nodes = await store.nodes()
        assert [record.id for record in nodes] == [node.id] == ["n_test"]
        assert (nodes[0].address, nodes[0].pid, nodes[0].started_at) == ("test", os.getpid(), 100.0)
        with file.open() as opened, pytest.raises(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert await store.nodes() == []
    assert not file.exists()
    await node.leave()


async def test_a_living_node_is_never_found_dead(store: SQLStore, tmp_path: Path) -> None:
    async with started(store, tmp_path) as one, started(store, tmp_path, "n_two") as two:
        assert await one.find_dead() == []
        assert await two.recover() == []
        assert len(await store.nodes()) == 2


async def test_a_store_in_memory_needs_no_lock() -> None:
    async with SQLStore.memory() as store:
        async with Node(store, None, address="test", clock=clock) as node:
            assert node.record.proof_key == ""
            assert await node.find_dead() == []
            assert await node.recover() == []
        assert await store.nodes() == []


async def test_a_folder_without_room_for_locks_is_an_error(store: SQLStore, tmp_path: Path) -> None:
    (tmp_path / "nodes").touch()
    with pytest.raises(StoreUnavailable, match="data folder"):
        async with started(store, tmp_path):
            pass


async def test_a_node_that_cannot_join_keeps_no_lock(tmp_path: Path) -> None:
    store = SQLStore.sqlite(tmp_path)
    with pytest.raises(StoreUnavailable):
        async with started(store, tmp_path):
            pass
    path = tmp_path / "nodes" / "n_test.lock"
    if path.exists():
        with path.open() as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def gone(node: str, proof_key: str, pid: int) -> NodeRecord:
    return NodeRecord(id=node, proof_key=proof_key, started_at=1.0, pid=pid)


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("file", "same_key", "running", "dead"),
    [
        (True, True, True, True),
        (True, False, True, True),
        (False, True, False, True),
        (False, True, True, False),
        (False, False, True, True),
    ],
)
async def test_a_node_is_dead_by_its_lock_or_its_process(
    store: SQLStore, tmp_path: Path, file: bool, same_key: bool, running: bool, dead: bool
) -> None:
    async with started(store, tmp_path) as node:
        key = node.record.proof_key if same_key else "another boot"
        await store.join(gone("n_gone", key, os.getpid() if running else ended_pid()))
        if file:
            (tmp_path / "nodes" / "n_gone.lock").touch()
        assert await node.find_dead() == (["n_gone"] if dead else [])
        assert await node.find_dead() == []


async def test_recovering_sweeps_the_files_of_processes_that_never_joined(
    store: SQLStore, tmp_path: Path
) -> None:
    locks = LockFolder(tmp_path / "nodes")
    await locks.hold("n_starting")
    (tmp_path / "nodes" / "n_killed.lock").touch()
    async with started(store, tmp_path) as node:
        await node.recover()
        names = {path.name for path in (tmp_path / "nodes").iterdir()}
        assert names == {"n_test.lock", "n_starting.lock"}
    locks.drop("n_starting", remove=True)


async def test_recovering_takes_up_what_a_killed_adopter_left_half_done(
    store: SQLStore, tmp_path: Path
) -> None:
    await store.join(gone("n_gone", "key", 1))
    await add(store, "sh_a", "n_gone")
    await store.declare_dead("n_gone")
    async with started(store, tmp_path) as node:
        assert await node.recover() == ["sh_a"]
        assert await node.recover() == []


class Workers:
    """Starts nodes in separate processes and reads their reports. Every kill is a SIGKILL by pid."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout
        self.alive: dict[int, str] = {}
        self.log: list[list[str]] = []

    def start(self, seed: int) -> None:
        self._stdin.write(f"{seed}\n")
        self._stdin.flush()

    def read(self) -> list[str]:
        words = self._stdout.readline().split()
        assert words, "the workers ended"
        self.log.append(words)
        if words[0] == "up":
            self.alive[int(words[1])] = words[2]
        return words

    def read_until(self, first: str) -> list[str]:
        while True:
            words = self.read()
            if words[0] == first:
                return words

    def kill(self, pid: int) -> None:
        del self.alive[pid]
        os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the remaining processes and read their earlier output."""
        self._stdin.close()
        for pid in [*self.alive]:
            self.kill(pid)
        for line in self._stdout:
            words = line.split()
            self.log.append(words)
            if words[0] == "up":
                os.kill(int(words[1]), signal.SIGKILL)


@contextmanager
def workers(folder: Path, place: str, *sessions: str) -> Generator[Workers]:
    command = [sys.executable, str(WORKER), str(folder), place, *sessions]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        nodes = Workers(process)
        try:
            yield nodes
        finally:
            if process.stdin is not None and not process.stdin.closed:
                nodes.end()


def open_store(place: str) -> SQLStore:
    return SQLStore.remote(place) if "://" in place else SQLStore.sqlite(Path(place))


async def made(place: str, *sessions: str) -> None:
    async with open_store(place) as store:
        for session_id in sessions:
            await add(store, session_id, status=Status.PAUSED)


@pytest.mark.fault
async def test_a_killed_node_is_dead_and_a_stopped_one_is_not(
    store: SQLStore, tmp_path: Path
) -> None:
    await add(store, "sh_a", status=Status.PAUSED)
    with workers(tmp_path, str(tmp_path), "sh_a") as running:
        running.start(1)
        _, pid, name = running.read_until("up")
        running.read_until("claim")
        async with started(store, tmp_path) as node:
            os.kill(int(pid), signal.SIGSTOP)
            assert await node.find_dead() == []
            running.kill(int(pid))
            await until_gone(int(pid))
            assert await node.find_dead() == [name]
            await node.recover()
            assert [record.id for record in await store.nodes()] == [node.id]
            assert [path.name for path in (tmp_path / "nodes").iterdir()] == ["n_test.lock"]
            loaded = await store.claim("sh_a", node.id, 5.0)
            assert loaded is not None


@pytest.mark.fault
async def test_a_child_of_a_node_does_not_inherit_its_lock(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    program = """
import os, subprocess, sys, time, anyio
from pathlib import Path
from statehold.sessions.node import Node
from statehold.sessions.store.sql import SQLStore

async def main():
    folder = Path(sys.argv[1])
    async with SQLStore.sqlite(folder) as store:
        async with Node(store, folder, address="", clock=time.time) as node:
            child = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
            print(child.pid, node.id, flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""
    [output] = fork_server.told_by("-c", program, str(tmp_path), lines=1)
    child, name = output.split()
    try:
        async with SQLStore.sqlite(tmp_path) as store, started(store, tmp_path) as node:
            assert await node.find_dead() == [name]
    finally:
        os.kill(int(child), signal.SIGKILL)


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, or the URL of a database, in which there is nothing yet."""
    match request.param:
        case "file":
            return str(tmp_path)
        case name:
            server: DatabaseServer = request.getfixturevalue(name)
            return server.emptied()


@pytest.mark.thorough
@pytest.mark.fault
@pytest.mark.parametrize("seed", [1])
async def test_racing_nodes_that_are_killed_at_random_never_share_a_session_nor_lose_a_write(
    tmp_path: Path, place: str, seed: int
) -> None:
    """Five nodes race for three sessions; every few lines one of them is killed and another one starts."""
    sessions = ("sh_a", "sh_b", "sh_c")
    kills = 4 if "://" in place else 8
    chance = random.Random(seed)
    await made(place, *sessions)
    with workers(tmp_path, place, *sessions) as running:
        for _ in range(5):
            running.start(chance.randrange(2**31))
        for _ in range(kills):
            for _ in range(chance.randint(1, 40)):
                running.read()
            while not running.alive:
                running.read()
            running.kill(chance.choice(sorted(running.alive)))
            running.start(chance.randrange(2**31))
        running.end()
    check(running.log, claims=kills)
    await check_end(tmp_path, place, running.log)


def check(log: list[list[str]], *, claims: int = 30) -> None:
    """Judge by the reports of the nodes, in the order in which they were written."""
    assert [words for words in log if words[0] == "failed"] == []
    epochs: dict[str, int] = defaultdict(int)
    owners: dict[tuple[str, int], str] = {}
    acknowledged: dict[str, int] = defaultdict(int)
    for kind, session_id, *rest in log:
        if kind in ("up", "adopted"):
            continue
        epoch, node, version = int(rest[0]), rest[1], int(rest[2])
        if kind == "claim":
            assert epoch > epochs[session_id], "an epoch was given twice, or went back"
            assert version >= acknowledged[session_id], "an acknowledged write was lost"
            epochs[session_id], owners[session_id, epoch] = epoch, node
        else:
            assert epoch == epochs[session_id], "a node acted after another had claimed"
            assert owners[session_id, epoch] == node
        if kind == "ack":
            assert version > acknowledged[session_id], "a write was applied to what came before it"
            acknowledged[session_id] = version
    assert sum(1 for words in log if words[0] == "claim") > claims


async def check_end(folder: Path, place: str, log: list[list[str]]) -> None:
    """Check that nothing is left of the dead nodes, and that the database holds all acknowledged writes."""
    async with open_store(place) as store, started(store, folder) as node:
        with anyio.fail_after(10):
            while len(await store.nodes()) > 1:
                await node.recover()
        assert [path.name for path in (folder / "nodes").iterdir()] == ["n_test.lock"]
        sessions, _ = await store.list_sessions(SessionFilter())
        assert {record.node for record in sessions} == {None}
        assert await store.check() == []
        for record in sessions:
            versions = [int(w[4]) for w in log if w[0] == "ack" and w[1] == record.id]
            state = await store.state(record.id)
            assert state is not None
            assert state.version >= max(versions)
            assert state.value == {"n": state.version}
            seqs = [entry.seq for entry in await store.journal(record.id, last=100_000)]
            assert seqs == list(range(1, len(seqs) + 1))


async def test_checking_the_log_finds_two_owners_and_a_lost_write() -> None:
    """The judge itself is tested: each of these must be refused."""
    good = [f"claim sh_a {epoch} n 0".split() for epoch in range(1, 60)]
    check(good)
    for bad in (
        ["claim sh_a 59 m 0"],
        ["claim sh_a 60 m 0", "effect sh_a 59 n 1"],
        ["effect sh_a 59 m 1"],
        ["ack sh_a 59 n 1", "claim sh_a 60 m 0"],
    ):
        with pytest.raises(AssertionError):
            check([*good, *(line.split() for line in bad)])
