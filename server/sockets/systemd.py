"""The interface to systemd: a listening socket that it opened for this process, and notices about the state of the process.

Both are no-ops in a process that systemd did not start. The rules are those of sd_listen_fds(3) and sd_notify(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Literal

FIRST_DESCRIPTOR: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

logger = logging.getLogger("statehold.server")


class WrongSocket(ValueError):
    """Raised when the sockets that systemd passed are not one listening TCP socket. The text says what is wrong."""


def inherited_listener(environ: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening TCP socket that systemd opened for this process, None without one. The caller closes it.

    The variables about it are removed, so that child processes do not take it for theirs.

    Raises:
        WrongSocket: there are several sockets, or the one is not a listening TCP socket.
    """
    pid, count = environ.get("LISTEN_PID"), environ.get("LISTEN_FDS", "")
    for variable in _VARIABLES:
        environ.pop(variable, None)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise WrongSocket(f"systemd passes {count or 'no'} sockets, and one is served")
    try:
        listener = socket.socket(fileno=FIRST_DESCRIPTOR)
    except OSError as error:
        raise WrongSocket(
            f"descriptor {FIRST_DESCRIPTOR} is no socket ({error.strerror})"
        ) from None
    listener.set_inheritable(False)
    is_tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and (
        listener.type == socket.SOCK_STREAM
    )
    if not is_tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.close()
        raise WrongSocket("the socket of systemd is no listening TCP socket")
    return listener


def notify(
    state: Literal["READY=1", "STOPPING=1"], environ: MutableMapping[str, str] = os.environ
) -> None:
    """Report a state to systemd, which waits for READY=1 in a unit with Type=notify. A failure is logged."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # An address that begins with @ is in the abstract namespace, which the kernel writes as a zero byte.
    address = address.replace("@", "\0", 1) if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except OSError as error:
        logger.warning("systemd was not told %s: %s", state, error.strerror)
