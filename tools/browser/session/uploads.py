"""The files of this machine that a session may give to a page: its own, those in the folders of `uploads`, and those in
the roots of a client on this machine."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio
import anyio.to_thread

from ....sessions.errors import NotAllowed
from ..errors import BrowserToolFailed
from .files import FILES_OF_SESSION, Files

if TYPE_CHECKING:
    from ....sessions.json_codec import JSON
    from ....sessions.services import CallContext
    from .session import BrowserSession

MAX_FOLDER_ENTRIES: Final = 1000
"""The most files and folders in an uploaded folder."""
ROOTS_SECONDS: Final = 5.0
"""Seconds within which a client has to list its roots, or it has none."""


async def upload_folders(session: BrowserSession, ctx: CallContext, paths: list[str]) -> list[Path]:
    """Return the folders that the caller may upload `paths` from: those of `uploads`, and the roots of a local client."""
    folders = list(map(Path, session.config.uploads))
    if session.has_local_callers and paths:
        own = set(await session.files.names())
        if any(session.files.name_of(path) not in own for path in paths):
            folders += await _client_roots(ctx)
    return folders


async def _client_roots(ctx: CallContext) -> list[Path]:
    """Return the folders that the client works in, by its own account; empty if it lists none."""
    answer: JSON = {}
    if "roots" in ctx.capabilities:
        with suppress(NotAllowed), anyio.move_on_after(ROOTS_SECONDS):
            answer = await ctx.ask("roots/list", {})
    roots: object = answer.get("roots")
    paths = map(_path_of_root, cast("list[Any]", roots)) if isinstance(roots, list) else ()
    return [path for path in paths if path is not None]


def _path_of_root(root: Any) -> Path | None:
    with suppress(ValueError, TypeError, KeyError):
        parts = urlsplit(str(root["uri"]))
        if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
            return Path(url2pathname(parts.path))
    return None


async def allowed_paths(
    session: BrowserSession, paths: list[str], folders: list[Path]
) -> list[Path]:
    """Return the paths of files: each is given by the name or URI of a file of the session, or a path in one of `folders`.

    Raises:
        BrowserToolFailed: There is no such file, or it may not be uploaded. Outside the folders both have the same message.
    """
    return await anyio.to_thread.run_sync(
        lambda: [_allowed_path(path, session.files, folders) for path in paths]
    )


async def read_allowed(session: BrowserSession, ctx: CallContext, text: str) -> bytes:
    """Return the content of a file that the session may upload, of at most `download_bytes`.

    Raises:
        OSError: It cannot be read.
        BrowserToolFailed: There is no such file, it may not be read, or it is too large.
    """
    folders = await upload_folders(session, ctx, [text])
    read = partial(_read_allowed, text, session.files, folders, session.config.download_bytes)
    return await anyio.to_thread.run_sync(read)


def _read_allowed(text: str, files: Files, folders: list[Path], limit: int) -> bytes:
    path = _allowed_path(text, files, folders)
    # Another program may replace the file, or a folder above it, by a link or a pipe while it is being opened.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not _is_regular(status) or not os.path.samestat(
            status, _allowed_path(text, files, folders).stat()
        ):
            raise BrowserToolFailed(f"{text[:500]!r} was replaced while it was read.")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BrowserToolFailed(f"{text[:500]!r} has more than {limit} bytes.")
    return content


async def allowed_folder(
    session: BrowserSession, paths: list[str], folders: list[Path]
) -> Path | None:
    """Return the wanted folder below one of `folders`, or None if `paths` is not one such folder.

    Raises:
        BrowserToolFailed: The folder is too large, or contains links, which may lead anywhere.
    """
    if len(paths) != 1:
        return None
    limit = session.config.download_bytes * FILES_OF_SESSION
    find_folder = partial(_allowed_folder, paths[0], folders, limit)
    return await anyio.to_thread.run_sync(find_folder)


def _allowed_folder(path: str, folders: list[Path], limit: int) -> Path | None:
    # An absolute path stays as it is.
    for candidate in [root.expanduser() / path for root in folders]:
        with suppress(OSError, ValueError, RuntimeError):
            folder = candidate.resolve(strict=True)
            if not (folder.is_dir() and any(_is_in(root, folder.parent) for root in folders)):
                continue
            if problem := _refusal_reason(folder, limit):
                raise BrowserToolFailed(
                    f"The folder {path[:500]!r} may not be uploaded: it has {problem}."
                )
            return folder
    return None


def _refusal_reason(folder: Path, limit: int) -> str:
    """Return why a folder may not be uploaded, or "" if it may."""
    entries = size = 0
    for directory, names, files in os.walk(folder):
        entries += len(names) + len(files)
        if entries > MAX_FOLDER_ENTRIES:
            return f"more than {MAX_FOLDER_ENTRIES} files"
        link = next((n for n in (*names, *files) if Path(directory, n).is_symlink()), None)
        statuses = {name: Path(directory, name).lstat() for name in files}
        link = link or next((n for n, status in statuses.items() if status.st_nlink > 1), None)
        if link is not None:
            return f"a link in it, {link[:200]!r}"
        other = next((n for n, status in statuses.items() if not _is_regular(status)), None)
        if other is not None:
            return f"something in it that is no file, {other[:200]!r}"
        size += sum(status.st_size for status in statuses.values())
        if size > limit:
            return f"more than {limit} bytes"
    return ""


def _is_regular(status: os.stat_result) -> bool:
    """Whether it is a file with content, and no pipe or device, whose reading may not end."""
    return stat.S_ISREG(status.st_mode)


def _is_in(folder: Path, path: Path) -> bool:
    return path.is_relative_to(folder.expanduser().resolve())


def _allowed_path(text: str, files: Files, folders: list[Path]) -> Path:
    candidates = [Path(text)]
    if not Path(text).is_absolute():
        roots = [folder.expanduser() for folder in folders]
        candidates = [files.folder / files.name_of(text), *(root / text for root in roots)]
    for candidate in candidates:
        with suppress(OSError, ValueError, RuntimeError):
            path = candidate.resolve(strict=True)
            if not path.is_file() or not any(_is_in(f, path) for f in (files.folder, *folders)):
                continue
            # One of its names may be outside of the folders, so that the file is not theirs.
            if path.stat().st_nlink > 1:
                raise BrowserToolFailed(
                    f"{text[:500]!r} may not be uploaded: it is a hard link, which may lead anywhere; copy the file."
                )
            return path
    where = f": {', '.join(map(str, folders))}" if folders else " (`uploads` in the configuration)"
    raise BrowserToolFailed(
        f"{text[:500]!r} is no file of this session and none in a folder for uploads{where}."
    )
