"""The thread of the blocking client: forked processes, and callbacks that block."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import pytest
from support.gateway_process import Running
from support.selection import matrix

from statehold.client import sync
from statehold.client.sync.portal import in_thread

FORKED = """
import multiprocessing, os, sys
from statehold.client.sync import connect
client = connect({url!r}).__enter__()
session = client.session().__enter__()
child = os.fork()
if child == 0:
    try:
        client.stats()
    except RuntimeError as error:
        print("child:", error, flush=True)
    with connect({url!r}) as mine:
        print("child:", mine.get(session.id).id == session.id, flush=True)
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]), flush=True)
    pool.close()
    pool.join()
print("parent:", client.get(session.id).id == session.id, flush=True)
"""


def test_a_forked_process_ends_and_may_connect_again(server: Running) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", FORKED.format(url=server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "child: the client was opened before a fork: connect again in this process",
        "child: True",
        "[1, 2]",
        "parent: True",
    ]


@pytest.mark.parametrize("many", matrix(10, 50))
def test_callbacks_that_call_back_do_not_wait_for_one_another(server: Running, many: int) -> None:
    reports, lock = list[int](), threading.Lock()
    with sync.connect(server.url) as client, client.session(services=["quick"]) as s:
        gate = threading.Barrier(many)

        def called(progress: float, total: float | None, message: str | None) -> None:
            gate.wait(30)
            s.info()
            with lock:
                reports.append(1)

        async def call(progress: float) -> None:
            await in_thread(called)(progress, None, None)

        async def all_at_once() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(many):
                    tasks.start_soon(call, 1.0)

        client.portal.run(all_at_once)
    assert len(reports) == many
