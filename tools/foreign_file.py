"""Files that others may have written: read up to a size, and no pipes or devices, whose reading may not end."""

from __future__ import annotations

import errno
import os
import stat
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
