"""Stands for a program that a nursery runs: `born.py SOCKET PROGRAM [ARGUMENT...]`; see nursery.py.

Its standard streams are the program's. It passes signals on and ends as the program ended; when it is killed, so is the
program.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper


def asked(
    address: str, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> tuple[socket.socket, TextIOWrapper, int]:
    """Have a nursery run a program: the connection, what is told over it when it ends, and its pid.

    The program is killed when the connection is closed before.
    """
    nursery = socket.socket(socket.AF_UNIX)
    nursery.connect(address)
    wish = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(environment)}
    socket.send_fds(nursery, [json.dumps(wish).encode() + b"\n"], streams)
    told = nursery.makefile()
    return nursery, told, int(told.readline())


def main() -> int:
    nursery, told, pid = asked(sys.argv[1], sys.argv[2:], os.environ, (0, 1, 2))
    with nursery, told:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        code = os.waitstatus_to_exitcode(int(told.readline()))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
