"""A process that is killed while it starts a child, before the child is recorded and before its death signal is set."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from support.fork_server import ForkServer
from support.process_exit import until_gone

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
]

PARENT = """
import anyio, os, signal, sys
from pathlib import Path
from statehold.tools.processes import launch
from statehold.tools.processes.ledger import Ledger
from statehold.tools.processes.child_process import ChildProcess

async def main():
    ledger = Ledger(Path(sys.argv[1]), node="node")
    launch.find_setpriv = lambda: sys.argv[2]
    def add(pid, *_, **__):
        print(pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    ledger.add = add
    await ChildProcess.start(["sleep", "3600"], service="test", ledger=ledger)

anyio.run(main)
"""
SLOW_SETPRIV = '#!/bin/sh\nsleep 0.5\nexec setpriv "$@"\n'


async def test_a_process_killed_between_the_start_and_the_record_of_a_child_leaves_no_child(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    setpriv = tmp_path / "setpriv"
    setpriv.write_text(SLOW_SETPRIV)
    setpriv.chmod(0o755)
    process = fork_server.start("-c", PARENT, str(tmp_path), str(setpriv), piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        pid = int(await anyio.to_thread.run_sync(process.stdout.readline))
        await anyio.to_thread.run_sync(process.wait)
    await until_gone(pid)
