"""The start of the background server, which outlives the client that starts it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence

from ...keeper.marks import MARK
from .folder import SharedFolder
from .requested_settings import SESSION_VARIABLE


def start_server(folder: SharedFolder, command: Sequence[str], *, within: float) -> str | None:
    """Start a server and return when it listens; the reason as one line if it does not. Blocks.

    The server writes a line to stdout when it listens. Its log is in the folder.

    Raises:
        OSError: the log cannot be written.
    """
    log = folder.open_log()
    log_start = os.fstat(log).st_size
    ready, stdout = os.pipe()
    try:
        _spawn_detached(command, stdout=stdout, stderr=log)
        os.close(stdout)
        is_ready = _read_ready(ready, within)
    finally:
        os.close(ready)
        os.close(log)
    if is_ready is None:
        return f"it takes more than {within:.0f} s; see {folder.log}"
    return None if is_ready else folder.reason_in_log(log_start)


def _spawn_detached(command: Sequence[str], *, stdout: int, stderr: int) -> None:
    """Start a process that is no descendant of this one: some clients end all descendants of the programs they started."""
    # Of the variables, the server gets neither the session of one client nor the mark of another Statehold's children.
    environ = {k: v for k, v in os.environ.items() if k.upper() not in (SESSION_VARIABLE, MARK)}
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    # Between fork and exec nothing is imported, and no lock is taken: another thread may have held it.
    try:
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            os.setsid()
            os.execvpe(command[0], list(command), environ)
    except OSError as error:
        os.write(2, f"statehold: cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(0)


def _read_ready(ready: int, within: float) -> bool | None:
    """Return whether the server listens, False when it ended before, None when it takes too long."""
    deadline = time.monotonic() + within
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([ready], [], [], remaining)[0]:
            return bool(os.read(ready, 4096))
    return None
