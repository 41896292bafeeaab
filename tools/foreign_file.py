"""Files that others may have written: they are read up to a size, but not if reading may not end, and replaced whole."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

SETTINGS_BYTES: Final = 16 << 20
"""The most bytes of a file with settings."""


def read_foreign(path: Path, most_bytes: int, *, any_kind: bool = False) -> bytes:
    """Return the bytes of a file.

    `any_kind`: a person has named the file, which may be a pipe such as that of `<(...)` in a shell; its end is waited for.

    Raises:
        OSError: It cannot be read, has more than `most_bytes`, or is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    if not any_kind:
        # The opening of a pipe waits for its writer.
        flags |= getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (any_kind or stat.S_ISREG(status.st_mode)):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        # The size of a regular file is known before its content takes memory.
        content = b"" if status.st_size > most_bytes else file.read(most_bytes + 1)
    if max(status.st_size, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return content


def replace_foreign(path: Path, content: bytes, *, like: Path | None = None) -> None:
    """Write a file in one step: a reader finds the old content or the new one, also after a crash.

    It gets the mode of the file `like`, by default of the one that it replaces, and from root also its owner. If there is
    none, the mode is 0600.

    Raises:
        OSError: It cannot be written.
    """
    # mkstemp() makes a file of mode 0600.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # The server may run as another user, to whom root gave the file.
        with suppress(FileNotFoundError):
            former = (like or path).stat()
            Path(draft).chmod(former.st_mode & 0o777)
            if os.name == "posix" and os.geteuid() == 0:
                os.chown(draft, former.st_uid, former.st_gid)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
