"""The folder of one session and service, and the values of the placeholders of a configuration there."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...sessions.records import LOCAL
from ...sessions.services import SessionView

_UNSAFE: Final = re.compile(r"[^\w.@+-]|^[.-]+")


def safe_name(name: str) -> str:
    """Return a name without characters of a path or an option; callers choose names, so they are not trusted."""
    return _UNSAFE.sub("_", name)[:120]


def distinct_name(session: SessionView) -> str:
    """Return the text for `{session_name}`: plain, and different for any two owners, namespaces and names.

    A plain name of the local caller stays as it is. Any other gets a digest behind a `~`, which no plain name has.
    """
    name = session.name or ""
    if session.owner in ("", LOCAL.key) and not session.namespace and safe_name(name) == name:
        return name
    # Callers choose the names: with a shorter digest one could search for a name with the folder of another caller.
    identity = "\0".join((session.owner, session.namespace, name))
    return f"{safe_name(name)}~{hashlib.sha256(identity.encode(errors='surrogatepass')).hexdigest()[:24]}"


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The values of `{dir}`, `{session_id}`, `{session_name}` and `{python}`."""

    folder: Path | None
    session_id: str
    session_name: str

    def fill(self, text: str) -> str:
        """Replace the placeholders and nothing else: the text may well be JSON with braces of its own."""
        text = text.replace("{python}", sys.executable)
        text = text.replace("{session_id}", self.session_id)
        text = text.replace("{session_name}", self.session_name)
        return text if self.folder is None else text.replace("{dir}", str(self.folder))


def private_folder(path: Path) -> None:
    """Make a folder, and what is missing above it, for the user alone: `parents=True` would open the upper ones to all."""
    for part in (*reversed(path.parents), path):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)


class WorkFolders:
    """The folders of one service, `<data>/work/<session>/<service>`, made when needed and removed by forget()."""

    def __init__(self, data: Path | None, service: str) -> None:
        self._service = safe_name(service)
        self._root = None if data is None else data / "work"
        self._temporary: Path | None = None

    async def placeholders_for(self, session: SessionView, *, needs_folder: bool) -> Placeholders:
        """Return the place of a session, with its folder when that is wanted."""
        name = distinct_name(session)
        if not needs_folder:
            return Placeholders(None, safe_name(session.id), name)
        path = await anyio.to_thread.run_sync(self._make, session.id)
        return Placeholders(path, safe_name(session.id), name)

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
        try:
            path.parent.rmdir()
            if self._temporary is not None:
                self._temporary.rmdir()
                self._temporary = None
        except OSError:
            pass  # Other services or sessions still have theirs there.


__all__ = ["Placeholders", "WorkFolders", "safe_name", "private_folder"]
