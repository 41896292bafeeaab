"""The ledger of children, the sweep at the next start, and the watchdog."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from support.fork_server import ForkServer
from support.process_exit import alive, until_gone

from statehold.tools.processes import procfs
from statehold.tools.processes.child_process import ChildProcess
from statehold.tools.processes.ledger import Ledger

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX only")

PARENT = """
import anyio, json, sys
from pathlib import Path
from statehold.tools.processes.ledger import Ledger
from statehold.tools.processes.child_process import ChildProcess

async def main():
    ledger = Ledger(Path(sys.argv[1]), node="node", watchdog=sys.argv[2] == "watchdog")
    command = ["/bin/sh", "-c", sys.argv[3]]
    child = await ChildProcess.start(command, service="test", ledger=ledger)
    print(json.dumps({"child": child.pid, "watchdog": ledger.watchdog_pid}), flush=True)
    while True:
        item = await child.read_stream.receive()
        print(json.dumps(item.message.params), flush=True)

anyio.run(main)
"""
TELLS = """echo '{"jsonrpc":"2.0","method":"told","params":{"pid":'$!'}}'"""
WRAPPER = f"sleep 3600 & {TELLS}; wait"
ESCAPES = f"setsid sleep 3600 </dev/null >/dev/null 2>&1 & {TELLS}; wait"


async def killed_parent(
    fork_server: ForkServer, folder: Path, watchdog: str, script: str
) -> dict[str, int]:
    """Run a process that starts `script`, kill it with -9, and return the pids that it printed."""
    command = ("-c", PARENT, str(folder), watchdog, script)
    lines = await anyio.to_thread.run_sync(lambda: fork_server.told_by(*command, lines=2))
    first, second = map(json.loads, lines)
    return first | second


async def test_a_child_is_written_down_for_us_alone_and_struck_out_when_it_is_gone(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path, node="n/../1")
    child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    (file,) = (tmp_path / "children").glob("*/*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert json.loads(file.read_text())["started"] == procfs.start_time(child.pid)
    await child.aclose()
    assert not file.exists()
    await ledger.aclose()
    assert not list((tmp_path / "children").iterdir())


@pytest.mark.fault
async def test_the_watchdog_kills_the_whole_group_when_we_are_killed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    pids = await killed_parent(fork_server, tmp_path, "watchdog", WRAPPER)
    await until_gone(*pids.values())


@pytest.mark.fault
@pytest.mark.skipif(not procfs.LINUX, reason="needs /proc")
async def test_the_watchdog_finds_what_left_the_group(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    pids = await killed_parent(fork_server, tmp_path, "watchdog", ESCAPES)
    await until_gone(*pids.values())


@pytest.mark.fault
@pytest.mark.skipif(not procfs.LINUX, reason="needs /proc")
@pytest.mark.parametrize("script", [WRAPPER, ESCAPES])
async def test_the_next_start_sweeps_what_a_killed_process_left(
    fork_server: ForkServer, tmp_path: Path, script: str
) -> None:
    pids = await killed_parent(fork_server, tmp_path, "none", script)
    assert alive(pids["pid"])
    ledger = Ledger(tmp_path, node="node")
    (killed,) = await ledger.sweep()
    assert pids["pid"] in killed.pids
    await until_gone(pids["pid"])
    assert await ledger.sweep() == []
    assert not list((tmp_path / "children").glob("*/*.json"))


async def test_a_sweep_leaves_children_of_living_processes_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, node="node", watchdog=False)
    child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    assert await Ledger(tmp_path, node="other").sweep() == []
    assert child.returncode is None
    await child.aclose()
    assert child.returncode == 0


async def test_a_sweep_never_kills_a_process_that_got_the_same_number(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, node="node", watchdog=False)
    child = await ChildProcess.start(["cat"], service="test", ledger=None)
    ledger.add(child.pid, ledger.mark(), "test")
    (file,) = (tmp_path / "children").glob("*/*.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "started": "1", "owner_started": "1"}))
    assert await Ledger(tmp_path, node="other").sweep() == []
    assert child.returncode is None
    assert not file.exists()
    await child.aclose()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": 1}'])
async def test_a_broken_file_is_removed(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "children" / "node"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text(content)
    assert await Ledger(tmp_path).sweep() == []
    assert not (folder / "1.json").exists()


@pytest.mark.parametrize(
    ("boot", "days", "stays"), [("", 0, True), ("", 8, False), ("other", 0, False)]
)
async def test_a_file_of_another_container_stays_for_a_week(
    tmp_path: Path, boot: str, days: int, stays: bool
) -> None:
    ledger = Ledger(tmp_path, node="node", watchdog=False)
    ledger.add(os.getpid(), ledger.mark(), "test")
    (file,) = (tmp_path / "children").glob("*/*.json")
    record = json.loads(file.read_text())
    mine = record["machine"].split(" ")[0]
    file.write_text(json.dumps({**record, "machine": f"{boot or mine} pid:[1]"}))
    age = file.stat().st_mtime - days * 86_400
    os.utime(file, (age, age))
    assert await Ledger(tmp_path, node="other").sweep() == []
    assert file.exists() is stays


async def test_the_watchdog_ends_with_the_ledger_and_holds_no_file(
    tmp_path: Path, leaks: Any
) -> None:
    ledger = Ledger(tmp_path)
    child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    assert ledger.watchdog_pid is not None
    files = psutil.Process(ledger.watchdog_pid).num_fds()
    assert files <= 4
    await child.aclose()
    await ledger.aclose()
    await ledger.aclose()
    await leaks.check()


async def test_a_watchdog_that_died_is_started_again_with_what_is_alive(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    first_child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    first_pid = ledger.watchdog_pid
    assert first_pid is not None
    os.kill(first_pid, signal.SIGKILL)
    await until_gone(first_pid)
    second_child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    assert ledger.watchdog_pid not in (None, first_pid)
    await ledger.aclose()
    with anyio.fail_after(5):
        await first_child.exited.wait()
        await second_child.exited.wait()
    assert (first_child.returncode, second_child.returncode) == (-signal.SIGKILL, -signal.SIGKILL)
    await first_child.aclose()
    await second_child.aclose()


async def test_the_watchdog_survives_the_signals_of_a_terminal(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    child = await ChildProcess.start(["cat"], service="test", ledger=ledger)
    watchdog = ledger.watchdog_pid
    assert watchdog is not None
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(watchdog, number)
    await child.aclose()
    assert alive(watchdog)
    await ledger.aclose()
    assert not alive(watchdog)
