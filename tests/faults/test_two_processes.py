"""Two processes on one data folder, killed at random: a session never has two owners, and no acknowledged write is lost."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from support.fork_server import ForkServer
from support.selection import matrix

from statehold.sessions.store.sql import SQLStore

WORKER = Path(__file__).with_name("worker.py")

pytestmark = pytest.mark.fault


class Remote:
    """A worker in a process of its own."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdout is not None
        self.lines = BufferedByteReceiveStream(process.stdout)

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request; an answer that never came is {"error": "killed"}."""
        assert self.process.stdin is not None
        try:
            if request:
                await self.process.stdin.send(json.dumps(request).encode() + b"\n")
            with anyio.fail_after(30):
                return json.loads(await self.lines.receive_until(b"\n", 1 << 20))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
            return {"error": "killed"}


class Pair:
    """Two workers; a killed one is replaced by one that was started before it is needed."""

    def __init__(self, fork_server: ForkServer, data: Path, log: Path) -> None:
        self._command = fork_server.command(str(WORKER), str(data), str(log))
        self.processes: list[Process] = []
        self.workers: list[Remote] = []

    async def start(self) -> Remote:
        process = await anyio.open_process(self._command, stderr=None)
        self.processes.append(process)
        remote = Remote(process)
        assert await remote.ask() == {"ready": True}
        return remote

    async def kill(self, which: int) -> None:
        self.workers[which].process.kill()
        await self.workers[which].process.wait()
        self.workers[which] = await self.start()


@asynccontextmanager
async def pair(fork_server: ForkServer, data: Path, log: Path) -> AsyncGenerator[Pair]:
    workers = Pair(fork_server, data, log)
    try:
        workers.workers = [await workers.start(), await workers.start()]
        yield workers
    finally:
        with anyio.CancelScope(shield=True):
            for process in workers.processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()
                await process.aclose()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("rounds", "kills"), matrix((16, 2), (100, 12)))
async def test_a_session_never_has_two_owners_and_keeps_every_acknowledged_write(
    fork_server: ForkServer, tmp_path: Path, rounds: int, kills: int
) -> None:
    chance = random.Random(20260728)
    data, log = tmp_path / "data", tmp_path / "calls.jsonl"
    moments = set(chance.sample(range(10, rounds), kills))
    acknowledged: dict[str, int] = {}
    answered: list[str] = []
    async with pair(fork_server, data, log) as workers:
        session: str = (await workers.workers[0].ask(op="create"))["session"]

        async def one(which: int, round_: int) -> None:
            remote, mark = workers.workers[which], f"{round_}.{which}"
            called = await remote.ask(op="call", session=session, mark=mark)
            if "error" not in called:
                answered.append(mark)
            updated = await remote.ask(op="update", session=session, values={mark: round_})
            if "error" not in updated:
                acknowledged[mark] = updated["version"]
            # Let the other one have a turn now and then.
            if chance.random() < 0.2:
                await remote.ask(op="pause", session=session)

        for round_ in range(rounds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, 0, round_)
                tasks.start_soon(one, 1, round_)
                if round_ in moments:
                    tasks.start_soon(workers.kill, chance.randrange(2))
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    pids = [call["pid"] for call in calls]
    runs = [pid for pid, _ in groupby(pids)]
    assert len(runs) == len(set(runs)), "an upstream was called again after another had taken over"
    marks = [call["arguments"]["mark"] for call in calls]
    assert len(marks) == len(set(marks)), "a call reached an upstream twice"
    assert set(answered) <= set(marks)
    assert len(set(runs)) > kills / 2, "the session hardly moved: this proves nothing"
    versions = sorted(acknowledged.values())
    assert len(set(versions)) == len(versions), "one version was acknowledged twice"
    async with SQLStore.sqlite(data) as store:
        state = await store.state(session)
        record = await store.get(session)
    assert state is not None
    assert record is not None
    assert set(acknowledged) <= set(state.value)
    assert state.version >= max(versions)
    assert record.epoch >= len(set(runs))
