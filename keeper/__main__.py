"""Runs the keeper of a data folder: `python -I -S keeper FOLDER READY`.

READY is the number of a descriptor on which it writes one line once it listens, or once another keeper turns out to hold the
folder.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress

from loop import Keeper, ignore_signals
from protocol import SOCKET, address_of, new_socket, open_folder


def main() -> None:
    folder, ready = open_folder(sys.argv[1]), int(sys.argv[2])
    lock = os.open(
        "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(ready, b"another\n")
        return
    ignore_signals()
    with suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=folder)
    with new_socket() as listener:
        mask = os.umask(0o177)
        listener.bind(address_of(folder))
        # Its children inherit it.
        os.umask(mask)
        listener.listen(64)
        listener.setblocking(False)
        os.write(ready, b"ready\n")
        os.close(ready)
        try:
            Keeper(listener).run()
        finally:
            os.unlink(SOCKET, dir_fd=folder)


main()
