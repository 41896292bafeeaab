"""The files of the background server in the data folder: the name of its socket, its locks and its log."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..sockets.address import (
    create_private_folder,
    is_listening,
    link_socket,
    remove_socket,
)
from ..sockets.request import Exchange, send_request

FOLDER = "shared"
SERVER = "server"
"""The second name of the local socket of the server."""
SERVER_LOCK = "server.lock"
"""Held by the server until its sessions are paused and its child processes have ended."""
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
    def published(self, server_socket: Path) -> Generator[None]:
        """Have clients find the local socket of the server during the block.

        Raises:
            OSError: the folder cannot be written.
        """
        link_socket(self.path, SERVER, server_socket)
        try:
            yield
        finally:
            remove_socket(self.path, SERVER)

    def is_published(self) -> bool:
        """Whether a server runs, or was killed: one that ends in order, or is told to, removes its name first."""
        return (self.path / f"{SERVER}.sock").is_symlink()

    def is_listening(self) -> bool:
        """Whether a server runs. Blocks for at most a second."""
        return is_listening(self.path, SERVER)

    def send(self, verb: str, members: Mapping[str, Any], following: bytes = b"") -> Exchange:
        """Send a request to the server, as send_request() does."""
        seconds = REPLY_SECONDS
        return send_request(self.path, SERVER, verb, members, seconds=seconds, following=following)

    @contextmanager
    def lock(self, name: str, *, within: float) -> Generator[bool]:
        """Hold a lock for the block; yields False if another process holds it for more than `within` seconds. Blocks."""
        handle = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _try_lock(handle, within)
        finally:
            os.close(handle)

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


def _try_lock(handle: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_RETRY_SECONDS)
        else:
            return True


__all__ = ["SERVER_LOCK", "START_LOCK", "SharedFolder"]
