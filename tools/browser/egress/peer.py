"""The user at the other end of a loopback connection, on systems that report it.

A loopback port is open to every user of a machine. Linux reports the owner of a socket: see sock_diag(7),
`inet_diag_req_v2`.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

logger = logging.getLogger(__name__)

_SOCK_DIAG: Final = 4
"""The protocol of netlink; the module `socket` does not name it."""
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8

_HEADER: Final = struct.Struct("=IHHII")
_ID: Final = struct.Struct("!HH16s16s")
_OWNER: Final = struct.Struct("=II")
_OWNER_AT: Final = _HEADER.size + 4 + 48 + 12
"""The offset of user and inode in an answer: after its header, four states, the socket's id, its timer and queues."""

_NOT_HERE: Final = frozenset({errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EPERM, errno.EACCES})


class SocketOwners:
    """Finds the owner of the other end of a connection. Open until close(); used from one thread."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: There is no file descriptor left for the netlink socket.
        """
        self._numbers = count(1)
        self._netlink_socket = _netlink()
        if self._netlink_socket is None or not self._works():
            logger.warning(
                "this system does not report the owner of a connection: its other users can use the proxy ports of browsers"
            )
            self.close()

    def are_ours(self, connection: socket.socket) -> bool:
        """Return whether the other end belongs to the user of this process; True if the system does not report owners.

        Does not block. A socket that is already closed belongs to no user, whatever it has sent before.

        Raises:
            OSError: The connection is gone.
        """
        return self._netlink_socket is None or self._owner(connection) == os.geteuid()

    def close(self) -> None:
        """Close the netlink socket. May be called twice."""
        if self._netlink_socket is not None:
            self._netlink_socket.close()
            self._netlink_socket = None

    def _works(self) -> bool:
        """Return whether the kernel reports the owner, tried on a connection of our own."""
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            far = stack.enter_context(socket.create_connection(listener.getsockname()))
            while True:
                near, peer = listener.accept()
                with near:
                    # Another process may have connected first.
                    if peer == far.getsockname():
                        return self._owner(near) == os.geteuid()

    def _owner(self, connection: socket.socket) -> int | None:
        assert self._netlink_socket is not None
        here, there = connection.getsockname(), connection.getpeername()
        addresses = [socket.inet_aton(host) + bytes(12) for host, _ in (there, here)]
        socket_id = _ID.pack(there[1], here[1], *addresses) + bytes(4) + _NO_COOKIE
        body = (
            struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + socket_id
        )
        number = next(self._numbers) & 0xFFFFFFFF
        self._netlink_socket.send(
            _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, number, 0) + body
        )
        while True:
            answer = self._netlink_socket.recv(4096)
            _, kind, _, answer_number, _ = _HEADER.unpack_from(answer)
            if answer_number == number:
                break
        if kind != _BY_FAMILY or len(answer) < _OWNER_AT + _OWNER.size:
            return None
        user, inode = _OWNER.unpack_from(answer, _OWNER_AT)
        # The kernel reports root as the owner of a socket that no process holds any more.
        return user if inode else None


def _netlink() -> socket.socket | None:
    netlink: Any = socket
    try:
        connection = socket.socket(netlink.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
    # The kernel answers before send() returns, so reads never wait.
    connection.setblocking(False)
    return connection
