"""The file with a key in the data folder."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

KEY_FILE: Final = "logins.key"


def key_in(folder: Path | None) -> str:
    """Return the key of a data folder; of several processes that make one at once, all get the same."""
    key = secrets.token_urlsafe(32)
    if folder is None:
        return key
    file = folder / KEY_FILE
    if not file.exists():
        new = file.with_name(f".{KEY_FILE}.{secrets.token_hex(4)}")
        try:
            _write(new, key)
            # The first link is the key; a file could be read before it is written.
            try:
                file.hardlink_to(new)
            except OSError:
                # Another process was first, or the file system has no hard links.
                with suppress(FileExistsError):
                    _write(file, key)
        finally:
            new.unlink(missing_ok=True)
    return file.read_text().strip()


def _write(file: Path, text: str) -> None:
    """Write a new file that only its user can read, and have it on the disk."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
