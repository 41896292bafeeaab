"""Unix sockets of this user in a folder of the data folder: their paths, their privacy, and the user at the other end."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

_PATH_BYTES = 100  # sun_path holds 104 on macOS and 108 on Linux, its end included


def socket_path(folder: Path, name: str) -> Path:
    """Return the path of a socket: in `folder`, or elsewhere when that path is too long for a socket."""
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    # Two processes may have different temporary folders, so the server writes the socket's path into a file.
    with suppress(OSError):
        return Path(_address_file(folder, name).read_text())
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:20]
    return Path(tempfile.gettempdir()) / f"statehold-{os.getuid()}" / f"{digest}.sock"


def _address_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.addr"


def create_private_folder(folder: Path) -> None:
    """Create a folder that only this user can enter.

    Raises:
        OSError: the folder cannot be created, or another user may enter it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_unless_private(folder)


def claim_socket_path(folder: Path, name: str) -> Path:
    """Return the path at which to bind a socket, for clients to find it by socket_path(). `folder` is private.

    Raises:
        OSError: another user may enter the folder of the socket, or it cannot be created.
    """
    path = socket_path(folder, name)
    if path.parent != folder:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _refuse_unless_private(path.parent)
        address_file = _address_file(folder, name)
        address_file.touch(0o600)
        address_file.write_text(str(path))
    return path


def _refuse_unless_private(folder: Path) -> None:
    """Refuse a folder in which another user could create a socket: the temporary folder is shared by all users."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "other users may enter it; run: chmod 700", os.fspath(folder)
        )


def remove_socket(folder: Path, name: str) -> None:
    """Remove the files of a socket on which no process listens any more."""
    socket_path(folder, name).unlink(missing_ok=True)
    _address_file(folder, name).unlink(missing_ok=True)


def is_listening(path: Path) -> bool:
    """Whether a process listens on a socket. Blocks for at most a second."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def is_same_user(connection: socket.socket) -> bool:
    """Whether this user, or root, is at the other end of a connection."""
    # The folder excludes other users already; where the kernel knows the peer's user, check that as well.
    if sys.platform != "linux":
        return True
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return uid in (os.getuid(), 0)


__all__ = [
    "claim_socket_path",
    "create_private_folder",
    "is_listening",
    "is_same_user",
    "remove_socket",
    "socket_path",
]
