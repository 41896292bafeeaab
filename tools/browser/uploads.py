"""Which files of this machine a session may give to a page: its own, and those in the folders of `uploads`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from .call import ToolFailed
from .files import Files

if TYPE_CHECKING:
    from .session import BrowserSession


async def allowed_paths(session: BrowserSession, wanted: list[str]) -> list[Path]:
    """Return the files that are meant: a name or URI of a file of the session, or a path in an upload folder.

    Raises:
        ToolFailed: there is no such file, or it may not be given away. Both read the same outside of the folders.
    """
    return await anyio.to_thread.run_sync(
        lambda: [_allowed(path, session.files, session.config.uploads) for path in wanted]
    )


def _allowed(wanted: str, files: Files, uploads: list[str]) -> Path:
    folders = [files.folder, *map(Path, uploads)]
    path = Path(wanted) if Path(wanted).is_absolute() else files.folder / files.name_of(wanted)
    try:
        found = path.resolve(strict=True)
        if found.is_file() and any(found.is_relative_to(f.expanduser().resolve()) for f in folders):
            return found
    except (OSError, ValueError, RuntimeError):
        pass
    raise ToolFailed(
        f"{wanted[:500]!r} is no file of this session and none in a folder for uploads (`uploads` in the configuration)."
    )


__all__ = ["allowed_paths"]
