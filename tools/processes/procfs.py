"""Reads facts about processes: start time, children, open files, and the mark in the environment (keeper/marks.py).

Linux has them in /proc. On other systems the start time comes from `ps` and the rest is unknown.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio

from ...keeper.marks import MARK, find_marked, kill_marked

LINUX: Final = sys.platform == "linux"
PROC: Final = Path("/proc")
_LISTENING: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""
_ACCEPTS_CONNECTIONS: Final = 0x10000
"""The flag of a listening socket in /proc/net/unix."""


def start_time(pid: int) -> str | None:
    """Return the start time of a process as text that identifies it together with its pid; None if there is no such process.

    A zombie counts as ended. Blocks: a few microseconds on Linux, some milliseconds elsewhere.
    """
    if not LINUX:
        return _start_time_by_ps(pid)
    fields = _stat(pid)
    return None if fields is None else fields[19].decode()


def _start_time_by_ps(pid: int) -> str | None:
    completed = subprocess.run(
        ["/bin/ps", "-o", "lstart=", "-p", str(pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return completed.stdout.decode("ascii", "replace").strip() or None


def machine_id() -> str:
    """Return an id of this boot of this machine and, on Linux, of the pid namespace. Pids are unique within one id."""
    if not LINUX:
        return os.uname().nodename
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def has_children(pid: int) -> bool:
    """Whether a process has children now. True if that is unknown."""
    try:
        return LINUX and any(_children(pid))
    except OSError:
        return True


def children(pid: int) -> list[int]:
    """Return the children that a process has now; Linux only, else empty."""
    with contextlib.suppress(OSError):
        return (
            [int(child) for listing in _children(pid) for child in listing.split()] if LINUX else []
        )
    return []


def _children(pid: int) -> Iterator[bytes]:
    for thread in os.listdir(PROC / str(pid) / "task"):
        yield (PROC / str(pid) / "task" / thread / "children").read_bytes().strip()


def tree_memory(pid: int) -> int | None:
    """Return the bytes of memory that a process and its descendants hold (RSS: shared pages count in each of them).

    None if the process has ended, and on systems other than Linux. Blocks: about 50 microseconds for each process.
    """
    own = resident_memory(pid)
    if own is None:
        return None
    return own + sum(tree_memory(child) or 0 for child in children(pid))


def resident_memory(pid: int) -> int | None:
    """Return the bytes of memory that a process holds; Linux only, else None."""
    try:
        return int((PROC / str(pid) / "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def tree_cpu_seconds(pid: int) -> float | None:
    """Return the CPU time that a process and its living descendants have used; None as for tree_memory(). Blocks."""
    fields = _stat(pid) if LINUX else None
    if fields is None:
        return None
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return round(own + sum(tree_cpu_seconds(child) or 0.0 for child in children(pid)), 2)


def program_name(pid: int) -> str:
    """Return the name of the program a process runs, cut to 15 characters; Linux only, else a question mark."""
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def command_line(pid: int) -> str:
    """Return the command line of a process, joined by spaces; Linux only, else empty."""
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def open_descriptors(pid: int) -> list[str]:
    """Return the target of each open descriptor of a process, such as a path or `socket`; Linux only, else empty."""
    folder = PROC / str(pid) / "fd"
    targets: list[str] = []
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                target = os.readlink(folder / number)
                targets.append(target if target.startswith("/") else target.partition(":[")[0])
    return targets


def working_folder(pid: int) -> str | None:
    """Return the working folder of a process, None if that is not known; Linux only."""
    try:
        return os.readlink(PROC / str(pid) / "cwd") if LINUX else None
    except OSError:
        return None


def written_files(pid: int) -> list[str]:
    """Return the files that a process has open for writing, without devices and deleted files; Linux only, else empty."""
    files: list[str] = []
    with contextlib.suppress(OSError):
        for number in os.listdir(PROC / str(pid) / "fd") if LINUX else ():
            with contextlib.suppress(OSError, ValueError):
                target = os.readlink(PROC / str(pid) / "fd" / number)
                if _is_written(pid, number) and _is_file(target):
                    files.append(target)
    return files


def _is_file(target: str) -> bool:
    is_other = target.startswith(("/dev/", "/proc/", "/sys/", "/memfd:"))
    return target.startswith("/") and not is_other and not target.endswith(" (deleted)")


def _is_written(pid: int, number: str) -> bool:
    text = (PROC / str(pid) / "fdinfo" / number).read_text()
    flags = next(line.split()[1] for line in text.splitlines() if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def listening_ports(pid: int) -> list[int]:
    """Return the TCP ports on which a process listens; Linux only, else empty."""
    if not LINUX:
        return []
    sockets = _descriptors(pid)
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in sockets:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _descriptors(pid: int) -> set[str]:
    targets: set[str] = set()
    with contextlib.suppress(OSError):
        for number in os.listdir(PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                targets.add(os.readlink(PROC / str(pid) / "fd" / number))
    return targets


def _listening_paths(pid: int) -> list[str]:
    """Return the paths of the Unix sockets on which a process listens."""
    sockets, paths = _descriptors(pid), list[str]()
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "net" / "unix").read_text(errors="replace").splitlines()[1:]:
            fields = line.split(maxsplit=7)
            listens = len(fields) == 8 and int(fields[3], 16) & _ACCEPTS_CONNECTIONS
            if listens and f"socket:[{fields[6]}]" in sockets:
                paths.append(fields[7])
    return paths


def find_daemons(pids: Iterable[int], leader: int, private: Path | None) -> set[int]:
    """Return the daemons that other programs can use among some descendants of `leader`, with their own descendants.

    A daemon left the session of its starter, has no pipe as its stdin, stdout or stderr, and listens on a port or on a Unix
    socket outside the folder `private`.
    """
    stats = {pid: fields for pid in pids if (fields := _stat(pid)) is not None}
    parents = {pid: int(fields[1]) for pid, fields in stats.items()}
    daemons = {
        pid
        for pid, fields in stats.items()
        if int(fields[3]) != leader and not _has_piped_output(pid) and _is_reachable(pid, private)
    }
    while more := {pid for pid, parent in parents.items() if parent in daemons} - daemons:
        daemons |= more
    return daemons


def _has_piped_output(pid: int) -> bool:
    for number in ("0", "1", "2"):
        with contextlib.suppress(OSError):
            if os.readlink(PROC / str(pid) / "fd" / number).startswith(("pipe:", "socket:")):
                return True
    return False


def _is_reachable(pid: int, private: Path | None) -> bool:
    outside = [
        path
        for path in _listening_paths(pid)
        if private is None or not Path(path).is_relative_to(private)
    ]
    return bool(outside or listening_ports(pid))


async def wait_for_exit(pid: int) -> bool:
    """Wait until a process ends that is not our child, and return True. Return False at once where that is not supported."""
    if not LINUX:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)
    return True


class RunningProcesses:
    """Some processes that are not our children, and whether all of them still run. Lives until close()."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handles: dict[int, int] = {}
        """The pidfd of each process."""
        self._start_times: dict[int, str] = {}
        """The start times of processes for which the kernel gives no pidfd."""

    def __contains__(self, pid: int) -> bool:
        return pid in self._handles or pid in self._start_times

    def add(self, pid: int) -> bool:
        """Add a process. Return False if it has ended."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError:
            time = start_time(pid)
            if time is not None:
                self._start_times[pid] = time
            return time is not None
        self._handles[pid] = handle
        self._poll.register(handle, select.POLLIN)
        return True

    def all_run(self) -> bool:
        """Whether none of them has ended, as the operating system reports now. Takes one system call."""
        return not self._poll.poll(0) and all(
            start_time(pid) == time for pid, time in self._start_times.items()
        )

    def close(self) -> None:
        """Give up the descriptors. May be called twice; all_run() is True from then on."""
        self._poll = select.poll()
        while self._handles:
            os.close(self._handles.popitem()[1])
        self._start_times.clear()


def group_members(pgid: int) -> list[int]:
    """Return the living members of a process group; on systems other than Linux the group's own number, if it has members.

    Reaps members that are our children, so do not call it while the exit code of the leader is still needed.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-pgid, os.WNOHANG)[0]:
            pass
    if not signal_group(pgid, 0):
        return []
    if not LINUX:
        return [pgid]
    return [
        int(entry) for entry in os.listdir(PROC) if entry.isdigit() and _group(int(entry)) == pgid
    ]


def _group(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[2])


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third on, None if the process has ended or is a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The program name is in brackets and may contain any character, so split after the last bracket.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else fields


def signal_group(pgid: int, number: int) -> bool:
    """Send a signal to a process group. Return False if it has no members."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS raises this for a group of zombies, Linux for members that run as another user.
        return LINUX
    return True


__all__ = [
    "LINUX",
    "MARK",
    "RunningProcesses",
    "children",
    "command_line",
    "open_descriptors",
    "find_daemons",
    "find_marked",
    "group_members",
    "has_children",
    "kill_marked",
    "listening_ports",
    "machine_id",
    "program_name",
    "resident_memory",
    "signal_group",
    "start_time",
    "tree_cpu_seconds",
    "tree_memory",
    "wait_for_exit",
    "working_folder",
    "written_files",
]
