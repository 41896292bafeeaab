"""The fork server of the tests goes on when a program and the process that asked for it end at once."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from support.fork_server import ForkServer
from support.waiting import until_blocking

PROGRAM = "import time; print('up', flush=True); time.sleep(60)"


@pytest.mark.thorough
def test_a_program_and_the_process_that_asked_for_it_may_end_at_once(tmp_path: Path) -> None:
    before = ForkServer.current
    with ForkServer.running(tmp_path) as server:
        with subprocess.Popen(server.command("-c", PROGRAM), stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"
            [parent] = [
                process
                for process in psutil.Process().children()
                if str(tmp_path / "fork_server") in process.cmdline() and process.pid != client.pid
            ]
            [program] = parent.children()
            # A request that does not come keeps it from handling what follows.
            with socket.socket(socket.AF_UNIX) as silent:
                silent.connect(str(tmp_path / "fork_server"))
                program.kill()
                until_blocking(lambda: program.status() == psutil.STATUS_ZOMBIE)
                client.kill()
        following = server.start("-c", "pass")
        assert following.stderr is not None
        with following.stderr:
            assert following.wait(10) == 0
    ForkServer.current = before
