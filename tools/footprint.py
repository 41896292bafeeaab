"""The disk space of the files of sessions below the data folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .processes.workdir import plain

FOLDERS: Final = ("work", "browser/files")
"""Folders in which services keep a folder per session: for `{dir}`, and for downloads, videos and results of browsers."""


def bytes_of_files(data: Path, session_ids: Sequence[str]) -> int:
    """Return the bytes of the files of some sessions, in time proportional to their number. It blocks.

    A file that is removed meanwhile counts as nothing, and no link is followed.
    """
    folders = [data / folder / plain(each) for each in session_ids for folder in FOLDERS]
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


__all__ = ["FOLDERS", "bytes_of_files"]
