"""deploy/try_cluster.py runs the example of docs/operate/cluster.md while a node is killed, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.databases import PostgreSQL
from support.machines import free_port
from support.reverse_proxies import StartProxy

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
TIMES = 20
"""The calls of the example."""


@contextmanager
def running(port: int) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The cluster, with what it printed when it was ready."""
    command = [sys.executable, str(ROOT / "deploy" / "try_cluster.py"), "--port", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            output = ""
            while "Ctrl-C ends all" not in output:
                line = process.stdout.readline()
                assert line, output
                output += line
            yield process, output
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def example() -> str:
    text = (ROOT / "docs" / "operate" / "cluster.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return program


@pytest.mark.fault
def test_the_example_counts_while_a_node_is_killed(
    postgresql: PostgreSQL, haproxy: StartProxy, tmp_path: Path
) -> None:
    port = free_port()
    program = tmp_path / "count.py"
    assert example().count(":8931") == 1
    program.write_text(example().replace(":8931", f":{port}"))
    with running(port) as (cluster, output):
        nodes = psutil.Process(cluster.pid).children(recursive=True)
        (pid,) = re.findall(r"kill -9 (\d+)", output)
        (folder,) = re.findall(r"tail -f (\S+)/\*\.log", output)
        with subprocess.Popen(
            [sys.executable, str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as counting:
            assert counting.stdout is not None
            lines = [counting.stdout.readline() for _ in range(3)]
            os.kill(int(pid), signal.SIGKILL)
            lines += counting.stdout.readlines()
            assert counting.wait(60) == 0, "".join(lines)
        assert len(lines) >= TIMES, lines
        nodes += psutil.Process(cluster.pid).children(recursive=True)
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(60) == 0
    assert not [node for node in nodes if node.is_running()]
    assert not Path(folder).exists()
