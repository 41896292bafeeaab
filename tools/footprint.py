"""The disk space of the files of sessions below the data folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .processes.workdir import safe_name

FOLDERS: Final = ("work", "browser/files")
"""The folders with one subfolder per session: `{dir}` of services, and the downloads, videos and results of browsers."""


def bytes_of_files(data: Path, session_ids: Sequence[str]) -> int:
    """Return the total size of the files of some sessions. Blocks, in proportion to the number of files.

    Files that are removed meanwhile are skipped; links are not followed.
    """
    folders = [
        data / folder / safe_name(session_id) for session_id in session_ids for folder in FOLDERS
    ]
    return sum(_size(path) for path in folders)


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
