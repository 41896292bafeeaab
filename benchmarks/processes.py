"""The processes of a measurement: start, stop by pid, and their use of processor and memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import anyio
import psutil

START_SECONDS = 60.0
STOP_SECONDS = 10.0


@contextmanager
def run_program(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Run a program while the block runs; its output goes to a file. Its child processes are stopped afterwards too."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            # Some programs write their files wherever they were started.
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program of ours, with SIGTERM first, and the processes that it left behind."""
    children = descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        # psutil compares start times, so another process that got the same pid is left alone.
        if child.is_running():
            child.kill()


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def keeper_of(data: Path) -> psutil.Process | None:
    """Return the keeper of a data folder; it is no descendant of the server that started it."""
    for process in psutil.process_iter(["cmdline"]):
        command: list[str] = process.info["cmdline"] or []
        if command[1:3] == ["-I", "-S"] and str(data) in command:
            return process
    return None


def upstreams_of(pid: int, data: Path) -> list[psutil.Process]:
    """Return the descendants of a server, and the processes that the keeper of its data folder holds."""
    keeper = keeper_of(data)
    return descendants(pid) + ([] if keeper is None else descendants(keeper.pid))


def own_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that processes have used in all their threads, those that ended included."""
    return sum(_cpu(pid) for pid in pids)


def _cpu(pid: int) -> float:
    if sys.platform == "linux":
        # The clock of another process (clock_getcpuclockid(3)): nanoseconds, where /proc/PID/stat has ticks of 10 ms.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def memory(pid: int) -> tuple[int, int]:
    """Return the resident memory in bytes, and the part of it that no other process shares."""
    usage = psutil.Process(pid).memory_full_info()
    return usage.rss, usage.uss


def family(pid: int, data: Path | None = None) -> list[psutil.Process]:
    """Return a process, its descendants, and the keeper of a data folder with its own."""
    keeper = None if data is None else keeper_of(data)
    processes = [psutil.Process(pid), *descendants(pid)]
    return processes if keeper is None else [*processes, keeper, *descendants(keeper.pid)]


def proportional(processes: Iterable[psutil.Process]) -> int:
    """Return the memory in bytes of processes, shared memory counted once (PSS; not on Linux: RSS)."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += pss(process.pid)
    return total


def pss(pid: int) -> int:
    """Return the memory in bytes of a process, with its share of what others use too (not on Linux: RSS)."""
    usage = psutil.Process(pid).memory_full_info()
    return getattr(usage, "pss", usage.rss)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return listener.getsockname()[1]


async def accepting(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a program that was just started accepts connections.

    Raises:
        RuntimeError: it ended instead.
        TimeoutError: it does neither.
    """
    with anyio.fail_after(START_SECONDS):
        while not _accepts(port):
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
            await anyio.sleep(0.02)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
