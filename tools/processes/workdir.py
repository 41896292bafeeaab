"""The working folder of a session and service, and the values of the placeholders in a configuration."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ...sessions.records import LOCAL
from ...sessions.services import SessionView

_UNSAFE: Final = re.compile(r"[^\w.@+-]|^[.-]+")

FOLDERS: Final = ("work", "browser/files")
"""The folders with one subfolder per session: `{dir}` of services, and the downloads, videos and results of browsers."""


def safe_name(name: str) -> str:
    """Return a name in which characters that have a meaning in paths or options are replaced. Callers choose the names."""
    return _UNSAFE.sub("_", name)[:120]


def distinct_name(session: SessionView) -> str:
    """Return the text for `{session_name}`: safe, and different for any two owners, namespaces and names.

    A safe name of the local caller is not changed. Others get `~` and a digest; safe names contain no `~`.
    """
    name = session.name or ""
    if session.owner in ("", LOCAL.key) and not session.namespace and safe_name(name) == name:
        return name
    # With a shorter digest a caller could search for a name that leads to the folder of another caller.
    identity = "\0".join((session.owner, session.namespace, name))
    return f"{safe_name(name)}~{hashlib.sha256(identity.encode(errors='surrogatepass')).hexdigest()[:24]}"


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The values of `{dir}`, `{session_id}`, `{session_name}` and `{python}`."""

    folder: Path | None
    session_id: str
    session_name: str
    owner: str = ""
    """The key of the principal of the session; empty outside of any. It stands for no text."""

    def fill(self, text: str) -> str:
        """Replace the placeholders only; other braces stay, because the text may be JSON."""
        text = text.replace("{python}", sys.executable)
        text = text.replace("{session_id}", self.session_id)
        text = text.replace("{session_name}", self.session_name)
        return text if self.folder is None else text.replace("{dir}", str(self.folder))


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents, all with mode 0700; `mkdir(parents=True)` ignores the mode for parents."""
    for part in (*reversed(path.parents), path):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)


def temporary_link(folder: Path) -> Path:
    """Return the link to the temporary files in the folder of a session, for sockets: their paths have 107 bytes at most.

    WorkFolders removes it with the folder.
    """
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"statehold-{os.getuid()}", digest)


class WorkFolders:
    """The folders of one service, `<data>/work/<session>/<service>`. placeholders_for() creates them, forget() removes them.

    Without a data folder they are in a temporary folder.
    """

    def __init__(self, data: Path | None, service: str) -> None:
        self._service = safe_name(service)
        self._root = None if data is None else data / "work"
        self._temporary: Path | None = None

    async def placeholders_for(self, session: SessionView, *, needs_folder: bool) -> Placeholders:
        """Return the placeholders of a session. With `needs_folder`, create its folder; else `{dir}` is not replaced."""
        name = distinct_name(session)
        if not needs_folder:
            return Placeholders(None, safe_name(session.id), name, session.owner)
        path = await anyio.to_thread.run_sync(self._make, session.id)
        return Placeholders(path, safe_name(session.id), name, session.owner)

    def _make(self, session_id: str) -> Path:
        path = self._path(session_id)
        private_folder(path)
        path.chmod(0o700)
        return path

    def _path(self, session_id: str) -> Path:
        if self._root is None:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="statehold-"))
            return self._temporary / safe_name(session_id) / self._service
        return self._root / safe_name(session_id) / self._service

    async def forget(self, session_id: str) -> None:
        """Remove the folder of a session, if there is one."""
        if self._root is None and self._temporary is None:
            return
        await anyio.to_thread.run_sync(self._remove, self._path(session_id))

    def _remove(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            temporary_link(path).unlink()
        try:
            path.parent.rmdir()
            if self._temporary is not None:
                self._temporary.rmdir()
                self._temporary = None
        except OSError:
            pass  # Other services or sessions still have theirs there.


def bytes_of_files(data: Path, session_ids: Sequence[str]) -> int:
    """Return the total size of the files of some sessions. Blocks, in proportion to the number of files.

    Files that are removed meanwhile are skipped; links are not followed.
    """
    return sum(map(_size, _folders(data, session_ids)))


def remove_files(data: Path, session_ids: Sequence[str]) -> None:
    """Remove the files of some sessions. Blocks, in proportion to the number of files."""
    for path in _folders(data, session_ids):
        shutil.rmtree(path, ignore_errors=True)


async def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, also when the caller is cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(shutil.rmtree, folder, True)


def _folders(data: Path, session_ids: Sequence[str]) -> Iterator[Path]:
    for session_id in session_ids:
        yield from (data / folder / safe_name(session_id) for folder in FOLDERS)


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
