"""Nodes that claim sessions as fast as they can. The tests of nodes start and kill them.

 node_worker.py FOLDER STORE SESSION...

STORE is the folder again, or the URL of a database. Each line on stdin starts one node, in a process forked from this one
(which has loaded everything and holds nothing). The nodes report their actions on stdout, one line each, in the order in
which they happened: a line is one write to the same pipe.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import anyio

from statehold.sessions.node import Node
from statehold.sessions.records import JournalKind, JournalRecord, StateRecord
from statehold.sessions.store import ClaimedSession, Write
from statehold.sessions.store.sql import SQLStore


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


async def serve(folder: Path, place: str, sessions: list[str], seed: int) -> None:
    chance = random.Random(seed)
    opened = (
        SQLStore.remote(place, busy_seconds=20.0)
        if "://" in place
        else SQLStore.sqlite(Path(place), busy_seconds=20.0)
    )
    async with (
        opened as store,
        Node(store, folder, address=f"pid {os.getpid()}", clock=time.time) as node,
    ):
        say("up", os.getpid(), node.id)
        while True:
            for session_id in await node.recover():
                say("adopted", session_id, node.id)
            loaded = await store.claim(chance.choice(sessions), node.id, time.time())
            if loaded is not None:
                await use(store, node.id, loaded, chance)


async def use(store: SQLStore, node: str, loaded: ClaimedSession, chance: random.Random) -> None:
    session_id, epoch = loaded.session.id, loaded.session.epoch
    version, seq = loaded.state.version, loaded.last_seq
    say("claim", session_id, epoch, node, version)
    for _ in range(chance.randint(1, 4)):
        version, seq = version + 1, seq + 1
        noted = JournalRecord(
            session_id=session_id, seq=seq, epoch=epoch, kind=JournalKind.CALL, started_at=1.0
        )
        changed = StateRecord(session_id=session_id, version=version, value={"n": version})
        say("effect", session_id, epoch, node, version)
        await store.write(Write(session_id, node, epoch, state=changed, journal=[noted]))
        say("ack", session_id, epoch, node, version)
    if chance.random() < 0.6:
        await store.write(Write(session_id, node, epoch, session={"node": None}))


def main() -> None:
    folder, place, sessions = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                anyio.run(serve, folder, place, sessions, int(line))
            except BaseException as error:
                say("failed", os.getpid(), type(error).__name__, repr(error).replace("\n", " "))
            finally:
                os._exit(1)


if __name__ == "__main__":
    main()
