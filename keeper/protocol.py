"""The packets between the keeper and the nodes of its data folder.

One socket of type SOCK_SEQPACKET in the data folder; each packet is one JSON object, with descriptors beside it. A node
sends requests: `{"verb": ..., "number": N, ...}`. The keeper answers each with `{"number": N, ...}`, or with an `error`.
Without a request it sends `{"exited": key, "code": C}` to the node that holds the child.

| verb | fields | answer |
| - | - | - |
| hello | version, linger (seconds; null for a command that holds no child) | |
| spawn | command, env, cwd, mark, session, service, generation, epoch | key, pid; four descriptors |
| confine | those of spawn; a Landlock ruleset beside them | those of spawn; the program runs in a domain of its own |
| adopt | session, service, generation, epoch | key, pid, code, stderr; four descriptors |
| leave | key | the child waits for the next node, as after the end of its node |
| keep | key, seconds | the child waits so long for the next node if that is more than linger; until it is adopted |
| release | key | the keeper closes its ends of the pipes and stays the parent |
| end | key | it kills the child, its group and its descendants |
| hold | key, name; one descriptor beside it | the keeper holds the descriptor until the child is gone |
| fetch | key, name | that descriptor |
| drop | key, name | the keeper closes the descriptor |
| list | | children, linger, nodes (connections of nodes) |

The four descriptors are the child's stdin, stdout, stderr and the call log, a file in memory. A child belongs to the node
that spawned or adopted it, until that node leaves it or its connection ends: only then another node can adopt it. An
adoption is refused in an earlier epoch of the session than the one before it.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

Packet: TypeAlias = dict[str, Any]

VERSION: Final = 1
SOCKET: Final = "keeper.sock"
PACKET_BYTES: Final = 192 * 1024
"""The longest packet. A child whose command and environment are longer is not kept."""
MAX_DESCRIPTORS: Final = 4
STDERR_BYTES: Final = 16 * 1024
"""The bytes of stderr that the keeper remembers of a child without a node. As JSON they may take six times as many."""

UNKNOWN: Final = "unknown"
"""The code of an error: the keeper holds no such child."""
STALE: Final = "stale"
"""The code of an error: another node has the session in this epoch, or in a later one."""
IN_USE: Final = "in_use"
"""The code of an error: the node that has the child is still connected."""
FAILED: Final = "failed"
"""The code of an error: the program could not be started; `errno` and `file` say why."""
INVALID: Final = "invalid"


def new_socket() -> socket.socket:
    """Return a socket whose buffers hold the longest packet."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACKET_BYTES)
    return opened


def address_of(folder: int) -> str:
    """Return the address of the socket in an open folder. A path may be longer than an address can be."""
    return f"/proc/self/fd/{folder}/{SOCKET}"


def open_folder(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end of a connection."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, user, _ = struct.unpack("3i", credentials)
    return pid, user


def send(connection: socket.socket, packet: Packet, descriptors: Sequence[int] = ()) -> None:
    """Send one packet.

    Raises:
        OSError: it is too long, the other end is gone, or its buffer is full.
    """
    data = json.dumps(packet, separators=(",", ":")).encode()
    if descriptors:
        socket.send_fds(connection, [data], descriptors)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[Packet, list[int]] | None:
    """Receive one packet; None at the end of the connection. The descriptors are closed when a program is executed.

    Raises:
        BlockingIOError: no packet is there.
        OSError: the connection broke.
        ValueError: it is no packet.
    """
    # socket.recv_fds() takes flags, and ignores them.
    received = array.array("i")
    space = socket.CMSG_LEN(MAX_DESCRIPTORS * received.itemsize)
    data, ancillary, flags, _ = connection.recvmsg(PACKET_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    descriptors = received.tolist()
    if not data:
        return None
    packet = None if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) else _parse(data)
    if packet is None:
        close_all(descriptors)
        raise ValueError("not a packet")
    return packet, descriptors


def _parse(data: bytes) -> Packet | None:
    try:
        packet: Any = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return cast("Packet", packet) if isinstance(packet, dict) else None


def _refuse_constant(name: str) -> Any:
    """Refuse NaN and the infinities, which are not JSON."""
    raise ValueError(name)


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
