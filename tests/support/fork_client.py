"""Stands for a program that a fork server runs: `fork_client.py SOCKET PROGRAM [ARGUMENT...]`; see fork_server.py.

Its standard streams are the program's. It passes signals on and ends as the program ended; when it is killed, so is the
program.
"""

from __future__ import annotations

# Import only modules that load at once: `json` and `socket` would take longer than the rest of this program.
import marshal
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import BufferedReader


def request_program(
    address: str, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> tuple[socket, BufferedReader, int]:
    """Have a fork server run a program. Return the connection, the stream that tells the exit status, and the pid.

    The program is killed if the connection is closed before its end.
    """
    fork_server = socket(AF_UNIX)
    fork_server.connect(address)
    program = {"arguments": [*arguments], "folder": os.getcwd(), "environment": {**environment}}
    message = marshal.dumps(program)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
    head = len(message).to_bytes(4, sys.byteorder)
    fork_server.sendmsg([head + message], [(SOL_SOCKET, SCM_RIGHTS, numbers)])
    status = open(fork_server.fileno(), "rb", closefd=False)  # noqa: SIM115 - it lives as long as the program
    return fork_server, status, int(status.readline())


def main() -> int:
    passed_on = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    # The program may serve before its pid is known here, and its users send signals then.
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    fork_server, status, pid = request_program(sys.argv[1], sys.argv[2:], os.environ, (0, 1, 2))
    for number in passed_on:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    code = os.waitstatus_to_exitcode(int(status.readline()))
    fork_server.close()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
