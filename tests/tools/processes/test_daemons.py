"""Daemons that servers of several sessions use: they live until the last of these servers ends."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from support.process_exit import alive, until_gone
from support.selection import matrix

from statehold.tools.processes.child_process import ChildProcess, ProcessLimits
from statehold.tools.processes.ledger import Ledger

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

QUICK_END = ProcessLimits(eof_grace=0.3, term_grace=0.3, kill_grace=2.0)

SERVER = """
import json, os, signal, socket, sys
out, place, piped = os.dup(1), sys.argv[1], sys.argv[2] == "piped"
if not os.fork():
    os.setsid()
    if not piped:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
    if place == "port":
        listener = socket.create_server(("127.0.0.1", 0))
    elif place:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen()
    if not os.fork():
        signal.pause()
    message = {"jsonrpc": "2.0", "method": "told", "params": {"pid": os.getpid()}}
    os.write(out, json.dumps(message).encode() + b"\\n")
    signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.pause()
"""


async def start(ledger: Ledger, place: str = "", stdio: str = "null") -> tuple[ChildProcess, int]:
    """Start a server with a daemon of its own, and return it and the pid of the daemon."""
    command = [sys.executable, "-S", "-E", "-c", SERVER, place, stdio]
    child = await ChildProcess.start(command, service="test", limits=QUICK_END, ledger=ledger)
    with anyio.fail_after(20):
        item = await child.read_stream.receive()
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCNotification)
    assert item.message.params is not None
    return child, item.message.params["pid"]


@pytest.mark.parametrize("place", matrix("socket", "port"))
@pytest.mark.parametrize("end", matrix("killed", "closed"))
async def test_a_daemon_that_others_can_reach_lives_until_the_last_server_of_its_service_ends(
    tmp_path: Path, place: str, end: str
) -> None:
    ledger = Ledger(tmp_path / "data")
    address = str(tmp_path / "d.sock") if place == "socket" else place
    first, daemon = await start(ledger, address)
    other, private = await start(ledger)
    if end == "killed":
        first.kill_nowait()
    await first.aclose()
    assert alive(daemon)
    assert len(list((tmp_path / "data").rglob("*.json"))) == 2
    third, _ = await start(ledger)
    await other.aclose()
    await until_gone(private)
    assert alive(daemon)
    await third.aclose()
    await until_gone(daemon)
    assert not list((tmp_path / "data").rglob("*.json"))
    await ledger.aclose()


@pytest.mark.parametrize("case", matrix("no address", "a pipe", "in the data folder"))
async def test_what_is_no_shared_daemon_ends_with_its_server(tmp_path: Path, case: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    ledger = Ledger(data)
    folder = data if case == "in the data folder" else tmp_path
    address = "" if case == "no address" else str(folder / "d.sock")
    other, _ = await start(ledger)
    first, left = await start(ledger, address, "piped" if case == "a pipe" else "null")
    first.kill_nowait()
    await first.aclose()
    await until_gone(left)
    await other.aclose()
    await ledger.aclose()


async def test_the_end_of_all_connections_leaves_no_shared_daemon(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data")
    first, daemon = await start(ledger, str(tmp_path / "d.sock"))
    other, _ = await start(ledger)
    await first.aclose()
    assert alive(daemon)
    await ledger.aclose()
    await until_gone(daemon)
    await other.aclose()
