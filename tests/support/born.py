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


def main() -> int:
    nursery = socket.socket(socket.AF_UNIX)
    nursery.connect(sys.argv[1])
    wish = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(nursery, [json.dumps(wish).encode() + b"\n"], [0, 1, 2])
    with nursery.makefile() as told:
        pid = int(told.readline())
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
