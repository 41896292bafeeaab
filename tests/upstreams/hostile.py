"""An MCP server that tries to leave its sandbox: `attempt` runs one attack and returns what it got.

On the standard library alone: `python -S -E hostile.py`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from quick import JSON, Quick, text, tool

MPTCP = 262
FAST_OPEN = 0x20000000
IO_URING_SETUP = 425
PTRACE_SEIZE = 0x4206

if "--reads" in sys.argv:
    # Before it is ready, as a server does with its settings.
    with open(sys.argv[-1]) as settings:
        settings.read()


def connect(target: str, protocol: int = 0) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as opened:
        opened.settimeout(5)
        opened.connect(("127.0.0.1", int(target)))
    return "connected"


def send_early(target: str) -> str:
    """Connect by sending, so that nothing sees a connect()."""
    with socket.socket() as opened:
        opened.sendto(b"early", FAST_OPEN, ("127.0.0.1", int(target)))
    return "sent"


def listen(target: str) -> str:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
    return "bound"


def listen_unbound(target: str) -> str:
    """Listen without a bind(), which takes a free port."""
    with socket.socket() as opened:
        opened.listen()
        with socket.create_connection(opened.getsockname(), 5):
            return "connected"


def hoard(target: str) -> str:
    """Open so many sockets that whoever gives them runs out of descriptors."""
    return str(len([socket.socket(socket.AF_UNIX) for _ in range(200)]))


def connect_to_path(target: str) -> str:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.connect(target)
    return "connected"


def send_to_path(target: str, kind: int = socket.SOCK_DGRAM) -> str:
    """Send from a socket of a pair, which needs no path itself."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        one.sendto(b"mine", target)
    return "sent"


def bind_path(target: str) -> str:
    """Listen at a path and say that it works, as Chromium does; no socket there is ever connected."""
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(target)
        opened.listen()
        opened.setblocking(False)
        with socket.socket(socket.AF_UNIX) as other:
            return str(other.connect_ex(target) == errno.ECONNREFUSED)


def call(function: Any, *arguments: Any) -> str:
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "done"


LIBC = ctypes.CDLL(None, use_errno=True)


def trace(target: str) -> str:
    call(LIBC.ptrace, PTRACE_SEIZE, int(target), None, None)
    return "traced"


def open_ring(target: str) -> str:
    return call(LIBC.syscall, IO_URING_SETUP, 1, bytes(120))


def write(target: str) -> str:
    with open(target, "w") as file:
        file.write("mine")
    return "written"


def move(target: str) -> str:
    """Move a file into another folder, as installers do."""
    folder = f"{target}-moved"
    os.mkdir(folder)
    os.rename(target, f"{folder}/file")
    return folder


def read(target: str) -> str:
    with open(target, "rb") as file:
        return str(len(file.read()))


def leave(target: str) -> str:
    """Start a daemon that carries no mark, has another group and outlives its parent."""
    script = "sleep 300 >/dev/null 2>&1 & echo $!"
    command = ["setsid", "env", "-i", "/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


ATTACKS: dict[str, Callable[[str], str]] = {
    "read": read,
    "bind_path": bind_path,
    "list": lambda target: str(os.listdir(target)),
    "write": write,
    "move": move,
    "connect": connect,
    "connect_mptcp": lambda target: connect(target, MPTCP),
    "send_early": send_early,
    "connect_to_path": connect_to_path,
    "send_to_path": send_to_path,
    "send_raw_to_path": lambda target: send_to_path(target, socket.SOCK_RAW),
    "listen": listen,
    "listen_unbound": listen_unbound,
    "hoard": hoard,
    "signal": lambda target: str(os.kill(int(target), 0)),
    "stop": lambda target: str(signal.pidfd_send_signal(os.pidfd_open(int(target)), 0)),
    "trace": trace,
    "limit": lambda target: str(resource.prlimit(int(target), resource.RLIMIT_CORE)),
    "open_ring": open_ring,
    "leave": leave,
}


class Hostile(Quick):
    def __init__(self) -> None:
        super().__init__()
        string: JSON = {"type": "string"}
        self.tools.append(tool("attempt", {"attack": string, "target": string}))
        self.tools.append(tool("where"))

    def tool_attempt(self, arguments: JSON, *_: object) -> JSON:
        try:
            return text(ATTACKS[arguments["attack"]](str(arguments.get("target", ""))))
        except OSError as error:
            return {**text(f"{type(error).__name__}: {error}"), "isError": True}

    def tool_where(self, *_: object) -> JSON:
        facts: JSON = {"dir": os.getcwd(), "pid": os.getpid(), "tmp": os.environ.get("TMPDIR")}
        return text(str(facts), facts)


if __name__ == "__main__":
    Hostile().run()
