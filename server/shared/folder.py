"""The files of the background server in the data folder: its locks and its log."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..sockets.address import create_private_folder
from ..sockets.processes import NODES, ask_server, read_processes
from ..sockets.request import Exchange

FOLDER = "shared"
SERVER_LOCK = "server.lock"
"""Held by the server until its sessions are paused and its child processes have ended. Its text is the pid of the server."""
START_LOCK = "start.lock"
"""Held by the client that starts a server."""
LOG_BYTES = 1 << 20
"""The size from which the log is set aside when a server starts; one older log is kept."""
LOCK_RETRY_SECONDS = 0.02
REPLY_SECONDS = 20.0
"""Seconds until a server has to answer a request."""


class SharedFolder:
    """The folder of the background server of one data folder. The locks are flocks, which end with their process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.path = data / FOLDER
        self.log = self.path / "server.log"

    def create(self) -> None:
        """Create the folder, private to this user.

        Raises:
            OSError: the folder cannot be created, or another user may enter it.
        """
        # mkdir applies the mode to the last folder only, and the one above is ours too.
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_private_folder(self.path)

    @contextmanager
    def marked(self, node: str) -> Generator[None]:
        """Have the lock file name this process during the block: a server that was killed is still named there.

        The time of the socket of its node is set back, so that commands and clients prefer every `statehold serve`.

        Raises:
            OSError: the folder cannot be written.
        """
        os.utime(self.data / NODES / f"{node}.sock", (0, 0), follow_symlinks=False)
        lock = self.path / SERVER_LOCK
        lock.write_text(f"{os.getpid()}\n")
        try:
            yield
        finally:
            lock.write_text("")

    def is_marked(self) -> bool:
        """Whether a background server runs, or was killed: one that ends in order removes its name first."""
        with suppress(OSError):
            return (self.path / SERVER_LOCK).stat().st_size > 0
        return False

    def is_expected(self) -> bool:
        """Whether a server runs, or a background server was killed. Blocks for some seconds if a process hangs."""
        return self.is_marked() or self.has_server()

    def lock_holder(self) -> int | None:
        """Return the pid of the process that holds the lock of the server, also of one that answers no request.

        None without one, and where the system does not tell.
        """
        with suppress(OSError, ValueError, IndexError):
            inode = (self.path / SERVER_LOCK).stat().st_ino
            for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
                words = line.split()
                if "FLOCK" in words and words[5].rpartition(":")[2] == str(inode):
                    return int(words[4])
        return None

    def has_server(self) -> bool:
        """Whether a server runs that takes on clients. Blocks for some seconds if a process hangs."""
        return bool(self._running_kinds())

    def has_background_server(self) -> bool:
        """Whether a background server runs that takes on clients, as has_server() does."""
        return "background" in self._running_kinds()

    def _running_kinds(self) -> set[str]:
        running = read_processes(self.data)
        return {each["kind"] for each in running if each.get("kind") and not each["ending"]}

    def send(
        self,
        verb: str,
        members: Mapping[str, Any],
        following: bytes = b"",
        *,
        seconds: float = REPLY_SECONDS,
    ) -> Exchange:
        """Send a request to the server, as ask_server() does."""
        return ask_server(self.data, verb, members, seconds=seconds, following=following)

    @contextmanager
    def lock(self, name: str, *, within: float) -> Generator[bool]:
        """Hold a lock for the block; yields False if another process holds it for more than `within` seconds. Blocks."""
        handle = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _try_lock(handle, within)
        finally:
            os.close(handle)

    def wait_ended(self, node: str, *, within: float) -> bool:
        """Wait until a process has ended, whose node is given if it has one, and the background server. Blocks.

        Returns False if one takes longer.
        """
        deadline = time.monotonic() + within
        for path in (self.data / NODES / f"{node}.lock", self.path / SERVER_LOCK):
            with suppress(FileNotFoundError):
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if not _try_lock(handle, deadline - time.monotonic(), fcntl.LOCK_SH):
                        return False
                finally:
                    os.close(handle)
        return True

    def open_log(self) -> int:
        """Return a descriptor of the log, at its end. A long log is set aside first.

        Raises:
            OSError: the log cannot be written.
        """
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def reason_in_log(self, start: int) -> str:
        """Return why a server ended: its message for the user among the lines from `start` on, or the last line."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(start)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line]
            messages = [line for line in lines if line.startswith("statehold: ")]
            if lines:
                return (messages or lines)[-1].removeprefix("statehold: ")
        return "it ended without a message"


def _try_lock(handle: int, within: float, kind: int = fcntl.LOCK_EX) -> bool:
    deadline = time.monotonic() + within
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_RETRY_SECONDS)
        else:
            return True
