"""Who is at the other end of a loopback connection, where the system tells.

A loopback port is open to every user of a machine. Linux tells whose a socket is: see sock_diag(7), `inet_diag_req_v2`.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import ExitStack
from functools import cache
from typing import Any, Final

_SOCK_DIAG: Final = 4
"""The protocol of netlink; the module `socket` does not name it."""
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8

_HEADER: Final = struct.Struct("=IHHII")
_ID: Final = struct.Struct("!HH16s16s")
_OWNER: Final = _HEADER.size + 4 + 48 + 12
"""Where an answer says the user: behind its header, four states, the socket's id and its timers and queues."""


def is_ours(connected: socket.socket) -> bool:
    """Say whether the other end belongs to the user of this process; True where the system tells nobody.

    It does not block. A socket that is gone already belongs to nobody.
    """
    return not _told() or _owner(connected) == os.geteuid()


@cache
def _told() -> bool:
    """Whether this system answers at all, tried on a connection of our own."""
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            stack.enter_context(socket.create_connection(listener.getsockname()))
            near, _ = listener.accept()
            return _owner(stack.enter_context(near)) == os.geteuid()
        except (OSError, AttributeError):
            return False


def _owner(connected: socket.socket) -> int | None:
    here, there = connected.getsockname(), connected.getpeername()
    addresses = [socket.inet_aton(host) + bytes(12) for host, _ in (there, here)]
    wanted = _ID.pack(there[1], here[1], *addresses) + bytes(4) + _NO_COOKIE
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + wanted
    netlink: Any = socket
    with socket.socket(netlink.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0)
        asking.send(head + body)
        answer = asking.recv(4096)
    if len(answer) < _OWNER + 4 or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    return struct.unpack_from("=I", answer, _OWNER)[0]


__all__ = ["is_ours"]
