"""The files of this machine that a session may give to a page: its own, and those in the folders of `uploads`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from .failures import ToolFailed
from .files import FILES_OF_SESSION, Files

if TYPE_CHECKING:
    from .session import BrowserSession

FOLDER_ENTRIES: Final = 1000
"""The most files and folders in an uploaded folder."""


async def allowed_paths(session: BrowserSession, paths: list[str]) -> list[Path]:
    """Return the paths of files: each is given by the name or URI of a file of the session, or a path in an upload folder.

    Raises:
        ToolFailed: There is no such file, or it may not be uploaded. Outside the folders both have the same message.
    """
    return await anyio.to_thread.run_sync(
        lambda: [_allowed_path(path, session.files, session.config.uploads) for path in paths]
    )


async def allowed_folder(session: BrowserSession, paths: list[str]) -> Path | None:
    """Return the wanted folder below one of the folders of `uploads`, or None if `paths` is not one such folder.

    Raises:
        ToolFailed: The folder is too large, or contains links, which may lead anywhere.
    """
    if len(paths) != 1 or not Path(paths[0]).is_absolute():
        return None
    limit = session.config.download_bytes * FILES_OF_SESSION
    find_folder = partial(_allowed_folder, paths[0], list(map(Path, session.config.uploads)), limit)
    return await anyio.to_thread.run_sync(find_folder)


def _allowed_folder(path: str, folders: list[Path], limit: int) -> Path | None:
    try:
        folder = Path(path).resolve(strict=True)
        if not (folder.is_dir() and any(_is_in(root, folder.parent) for root in folders)):
            return None
        problem = _refusal_reason(folder, limit)
    except (OSError, ValueError, RuntimeError):
        return None
    if problem:
        raise ToolFailed(f"The folder {path[:500]!r} may not be uploaded: it has {problem}.")
    return folder


def _refusal_reason(folder: Path, limit: int) -> str:
    """Return why a folder may not be uploaded, or "" if it may."""
    entries = size = 0
    for directory, names, files in os.walk(folder):
        entries += len(names) + len(files)
        if entries > FOLDER_ENTRIES:
            return f"more than {FOLDER_ENTRIES} files"
        link = next((n for n in (*names, *files) if Path(directory, n).is_symlink()), None)
        if link is not None:
            return f"a link in it, {link[:200]!r}"
        size += sum(Path(directory, name).stat().st_size for name in files)
        if size > limit:
            return f"more than {limit} bytes"
    return ""


def _is_in(folder: Path, path: Path) -> bool:
    return path.is_relative_to(folder.expanduser().resolve())


def _allowed_path(text: str, files: Files, uploads: list[str]) -> Path:
    folders = [files.folder, *map(Path, uploads)]
    path = Path(text) if Path(text).is_absolute() else files.folder / files.name_of(text)
    try:
        resolved = path.resolve(strict=True)
        if resolved.is_file() and any(_is_in(folder, resolved) for folder in folders):
            return resolved
    except (OSError, ValueError, RuntimeError):
        pass
    where = f": {', '.join(uploads)}" if uploads else " (`uploads` in the configuration)"
    raise ToolFailed(
        f"{text[:500]!r} is no file of this session and none in a folder for uploads{where}."
    )


__all__ = ["allowed_folder", "allowed_paths"]
