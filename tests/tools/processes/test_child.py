"""The child process: it leaves nothing behind, costs little, and its end is reported with a cause."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from support.fork_server import ForkServer
from support.process_exit import alive, until_gone
from support.waiting import until

from statehold.tools.processes.child_process import ChildProcess, ProcessLimits
from statehold.tools.processes.decoding import decode
from statehold.tools.processes.framing import StdoutReader, encode
from statehold.tools.processes.launch import find_setpriv
from statehold.tools.processes.ledger import Ledger

QUICK_END = ProcessLimits(
    line_bytes=2**20, stderr_bytes=1024, eof_grace=0.3, term_grace=0.3, kill_grace=2.0
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop of production; the tests of upstreams run on that of asyncio."""
    return "asyncio", {"use_uvloop": True}


async def start_child(
    code: str, *, limits: ProcessLimits = QUICK_END, ledger: Ledger | None = None
) -> ChildProcess:
    return await ChildProcess.start(
        [sys.executable, "-c", code], service="test", limits=limits, ledger=ledger
    )


async def take_baseline(leaks: Any) -> Any:
    """Take the baseline after a first child, because uvloop opens /dev/null once per loop and keeps it."""
    child = await ChildProcess.start(["cat"], service="test")
    await child.aclose()
    return leaks.baseline()


async def receive_notification(child: ChildProcess) -> JSONRPCNotification:
    with anyio.fail_after(10):
        item = await child.read_stream.receive()
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCNotification)
    return item.message


TELL = """
import json, os, subprocess, sys, signal, time
def tell(**params):
    print(json.dumps({"jsonrpc": "2.0", "method": "told", "params": params}), flush=True)
"""


async def test_grandchildren_die_though_the_child_left_by_itself(tmp_path: Path) -> None:
    code = TELL + "p = subprocess.Popen(['sleep', '3600']); tell(pid=p.pid); sys.stdin.read()"
    child = await start_child(code)
    params = (await receive_notification(child)).params
    assert params is not None
    await child.aclose()
    assert child.returncode == 0
    assert not alive(params["pid"])


async def test_grandchildren_die_though_the_child_crashed() -> None:
    code = TELL + "p = subprocess.Popen(['sleep', '3600']); tell(pid=p.pid); os._exit(3)"
    child = await start_child(code)
    params = (await receive_notification(child)).params
    assert params is not None
    with anyio.fail_after(5):
        await child.exited.wait()
    await child.aclose()
    assert child.describe_end() == "exited with code 3"
    assert not alive(params["pid"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_descendant_that_left_the_group_dies_by_its_mark(ledger: Ledger) -> None:
    code = TELL + (
        "p = subprocess.Popen(['sleep', '3600'], start_new_session=True,"
        " stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        " tell(pid=p.pid); sys.stdin.read()"
    )
    child = await start_child(code, ledger=ledger)
    params = (await receive_notification(child)).params
    assert params is not None
    await child.aclose()
    await until_gone(params["pid"])


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM")])
async def test_a_launcher_that_reports_the_signal_of_its_program_is_understood(
    number: int, name: str
) -> None:
    child = await start_child(f"import sys; sys.exit(128 + {number})")
    await child.wait_for_exit(10)
    code = 128 + number
    assert child.describe_end() == f"exited with code {code}: its program was killed by {name}"
    await child.aclose()


async def test_closing_is_finished_though_its_caller_is_cancelled() -> None:
    child = await start_child("import time; time.sleep(3600)")
    with anyio.move_on_after(0.01):
        await child.aclose()
    assert child.returncode == -signal.SIGTERM


async def test_a_start_that_is_cancelled_leaves_nothing(leaks: Any) -> None:
    leaks = await take_baseline(leaks)
    for _ in range(3):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await start_child("import time; time.sleep(3600)")
    await leaks.check()


def test_a_child_whose_loop_ends_while_it_is_closed_is_reaped() -> None:
    async def begin_to_close() -> int:
        child = await start_child("import time; time.sleep(3600)")
        asyncio.get_running_loop().create_task(child.aclose())
        await anyio.lowlevel.checkpoint()
        return child.pid

    pid = asyncio.run(begin_to_close())
    # A program that nothing reaps would be a warning here, and so an error.
    gc.collect()
    anyio.run(until_reaped, pid)


async def until_reaped(pid: int) -> None:
    await until(lambda: not psutil.pid_exists(pid))


@pytest.mark.thorough
async def test_unread_messages_stop_the_reading() -> None:
    code = TELL + "\nwhile True: tell(x='y' * 100_000)"
    child = await start_child(code)
    await receive_notification(child)
    before = psutil.Process().memory_info().rss
    for _ in range(200):
        await anyio.lowlevel.checkpoint()
    with anyio.move_on_after(0.5):
        await child.exited.wait()
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    await child.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have pipes of one size")
async def test_a_pipe_holds_more_after_a_long_line() -> None:
    tell_size = "tell(size=fcntl.fcntl(1, fcntl.F_GETPIPE_SZ));"
    child = await start_child(
        TELL + f"import fcntl; {tell_size} tell(x='y' * 300_000); {tell_size} time.sleep(3600)"
    )
    before, _, after = [(await receive_notification(child)).params or {} for _ in range(3)]
    assert before["size"] < after["size"] == 2**20
    await child.aclose()


async def test_a_result_is_handed_over_after_all_earlier_messages_only() -> None:
    reader, taken = StdoutReader(2**20, pytest.fail), dict[int, Any]()

    def take(number: int, result: Any) -> bool:
        taken[number] = result
        return number < 100

    def answer(number: int, value: object) -> bytes:
        message = {"jsonrpc": "2.0", "id": number, "result": {"value": value}}
        return json.dumps(message).encode() + b"\n"

    async def received() -> Any:
        with anyio.fail_after(10):
            item = await reader.receive()
        assert isinstance(item, SessionMessage)
        message = item.message
        return message.id if isinstance(message, JSONRPCResponse) else type(message)

    async def receive_next(data: bytes) -> Any:
        waiting = asyncio.create_task(received())
        await anyio.lowlevel.checkpoint()
        reader.data_received(data)
        return await waiting

    reader.take_result = take
    notification = b'{"jsonrpc": "2.0", "method": "notifications/x"}\n'
    reader.data_received(answer(1, 0))
    assert await received() == 1
    assert await receive_next(answer(2, [2**63 - 1, -1.5]) + notification + answer(3, 0)) is (
        JSONRPCNotification
    )
    assert await received() == 3
    assert taken == {2: {"value": [2**63 - 1, -1.5]}}
    # orjson would round the first of these, and refuse the others. Nobody waits for the last.
    for number, value in ((4, [2**70]), (5, math.nan), (6, "\ud800"), (100, 0)):
        assert await receive_next(answer(number, value)) == number
    assert taken.keys() == {2, 100}


async def test_the_end_of_the_child_is_seen_though_a_grandchild_holds_its_stdout() -> None:
    child = await start_child(TELL + "subprocess.Popen(['sleep', '3600']); os._exit(4)")
    with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
        await child.read_stream.receive()
    assert child.describe_end() == "exited with code 4"
    await child.aclose()


async def test_a_child_that_closes_its_stdin_is_lost() -> None:
    child = await start_child("import os, time; os.close(0); time.sleep(3600)")
    with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
        await child.read_stream.receive()
    assert child.describe_end() == "closed its stdin but still runs"
    with pytest.raises(anyio.BrokenResourceError):
        await child.write_stream.send(
            SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=7, method="m"))
        )
    assert 7 in child.write_stream.unsent
    await child.aclose()


async def test_a_request_to_a_child_that_reads_nothing_waits_and_a_cancellation_does_not() -> None:
    child = await start_child("import time; time.sleep(3600)")
    heavy = SessionMessage(
        JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params={"x": "y" * 2**20})
    )
    await child.write_stream.send(heavy)
    with anyio.move_on_after(0.05) as scope:
        await child.write_stream.send(heavy)
    assert scope.cancelled_caught
    with anyio.fail_after(10):
        await child.write_stream.send(
            SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="n"))
        )
    await child.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux only")
@pytest.mark.parametrize("setpriv", [True, False])
async def test_the_child_dies_when_we_are_killed(fork_server: ForkServer, setpriv: bool) -> None:
    if setpriv and find_setpriv() is None:
        pytest.skip("there is no setpriv that knows the death signal")
    code = (
        "import anyio, sys\n"
        "from statehold.tools.processes import launch\n"
        f"if not {setpriv}: launch.find_setpriv = lambda: None\n"
        "from statehold.tools.processes.child_process import ChildProcess\n"
        "async def main():\n"
        "    child = await ChildProcess.start(['sleep', '3600'], service='test')\n"
        "    print(child.pid, flush=True)\n"
        "    await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    process = fork_server.start("-c", code, piped=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        pid = int(await anyio.to_thread.run_sync(process.stdout.readline))
        # The death signal is set once the program runs; until then the watchdog of a ledger ends the child.
        await until(lambda: psutil.Process(pid).name() == "sleep")
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
    await until_gone(pid)


async def test_a_program_that_is_not_there_is_an_error_and_leaves_nothing(leaks: Any) -> None:
    leaks = leaks.baseline()
    with pytest.raises(FileNotFoundError):
        await ChildProcess.start(["/no/such/program"], service="test")
    await leaks.check()


async def test_the_exit_code_is_known_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    child = await start_child("import sys; sys.stdin.read(); sys.exit(5)", limits=ProcessLimits())
    await child.aclose()
    assert child.returncode == 5


@pytest.mark.parametrize(
    "line",
    [
        rb'{"jsonrpc":"2.0","id":1,"result":{"text":"half \ud83d"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"text":"\xff"}}',
    ],
)
def test_a_text_that_was_cut_inside_a_character_still_arrives(line: bytes) -> None:
    message = decode(line)
    assert isinstance(message, JSONRPCResponse)


def test_numbers_beyond_64_bits_are_written_exactly() -> None:
    message = JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params={"n": 10**30, "e": "é"})
    assert decode(encode(message)) == message


@pytest.mark.thorough
async def test_processes_left_running_by_a_child_that_ended_in_order_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = Ledger(None, watchdog=False)
    ready = """print('{{"jsonrpc": "2.0", "method": "ready"}}', flush=True)"""
    start = f"import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session={{}}); {ready}; {{}}"
    until_eof = "sys.stdin.read()"
    wait_for_eof = f"p = subprocess.Popen(['cat']); {ready.format()}; sys.stdin.read(); p.kill()"
    for code, expected in (
        (start.format(False, until_eof), ["sleep"]),
        (start.format(True, until_eof), ["sleep"]),
        (f"import subprocess, sys; {wait_for_eof}", []),
        (start.format(False, "import time; time.sleep(60)"), []),
    ):
        child = await start_child(code, ledger=ledger)
        assert (await receive_notification(child)).method == "ready"
        await child.aclose()
        remaining = [process for entry in ledger.remaining for process in entry.processes.items()]
        assert [name for _, name in remaining] == expected
        await until_gone(*(pid for pid, _ in remaining))
        assert ("left processes behind when it ended: sleep (" in caplog.text) == bool(expected)
        ledger.remaining.clear()
        caplog.clear()
    await ledger.aclose()
