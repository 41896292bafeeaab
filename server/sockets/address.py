"""Addresses of Unix sockets: names in folders that only this user can enter, and the user at the other end.

`NAME.sock` in a folder is the socket of that name, or a link to it. It is a link when its path would be too long for a
socket: then the socket is in the temporary folder, which may be another one in another process.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from .request import find_socket

_PATH_BYTES = 100  # sun_path holds 104 on macOS and 108 on Linux, its end included


def create_private_folder(folder: Path) -> None:
    """Create a folder that only this user can enter.

    Raises:
        OSError: the folder cannot be created, or another user may enter it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_unless_private(folder)


def claim_socket(folder: Path, name: str) -> Path:
    """Return the path at which to bind the socket of a name, in a private folder. An earlier one of that name is removed.

    Raises:
        OSError: another user may enter the folder of the socket, or it cannot be created.
    """
    remove_socket(folder, name)
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    # Imported here: it takes a twentieth of the start of a client of --shared.
    import tempfile

    elsewhere = Path(tempfile.gettempdir()) / f"statehold-{os.getuid()}"
    elsewhere.mkdir(mode=0o700, exist_ok=True)
    _refuse_unless_private(elsewhere)
    target = elsewhere / f"{_digest(path)}.sock"
    target.unlink(missing_ok=True)
    path.symlink_to(target)
    return target


def remove_socket(folder: Path, name: str) -> None:
    """Remove a name, and the socket that was bound for it in the temporary folder. Does nothing without one."""
    path = folder / f"{name}.sock"
    with suppress(OSError):
        target = path.readlink()
        if target.is_absolute() and target.stem == _digest(path):
            target.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:20]


def remove_stale_sockets(folder: Path, locks: Path) -> None:
    """Remove the sockets of killed nodes: those without a lock file in `locks` on which no process listens.

    A node holds its lock file before it binds its socket, and longer.
    """
    for path in folder.glob("*.sock"):
        if not (locks / f"{path.stem}.lock").exists() and not is_listening(folder, path.stem):
            with suppress(OSError):
                remove_socket(folder, path.stem)


def _refuse_unless_private(folder: Path) -> None:
    """Refuse a folder in which another user could create a socket: the temporary folder is shared by all users."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "other users may enter it; run: chmod 700", os.fspath(folder)
        )


def is_listening(folder: Path, name: str) -> bool:
    """Whether a process listens on a socket. Blocks for at most a second."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(find_socket(folder, name))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
