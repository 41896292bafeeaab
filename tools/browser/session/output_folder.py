"""Files on the disk of the browser: the folder of its outputs, and paths of a call that do not exist."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..config import BrowserConfig


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder at `path`. Beyond `most` bytes it loses its oldest files, also files of others. All methods block.

    Logs of open sessions stay, and do not count.
    """

    path: Path
    most: int | None = None
    open_logs: ClassVar[set[Path]] = set()
    """The logs of open sessions of this process. Several services may have the same folder."""

    def copy(self, file: Path) -> Path:
        """Copy a file into the folder, under another name if its name is taken there; return the path of the copy.

        Raises:
            OSError: The copy cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        copy = new_file(self.path, file.name)
        try:
            shutil.copyfile(file, copy)
        except OSError:
            copy.unlink(missing_ok=True)
            raise
        self.evict(copy)
        return copy

    def evict(self, newest: Path | None = None) -> None:
        """Remove the oldest files but `newest` until the rest has at most `most` bytes."""
        if self.most is None:
            return
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.most:
                break
            if path != newest:
                with suppress(OSError):
                    path.unlink()
                    total -= size

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield time, size and path of each file; folders, links, hidden files and logs of open sessions are left alone."""
        for path in self.path.iterdir():
            if path in self.open_logs:
                continue
            with suppress(OSError):
                if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                    stat = path.stat()
                    yield stat.st_mtime_ns, stat.st_size, path


def new_file(folder: Path, name: str) -> Path:
    """Create an empty file. If the name is taken, a number is added."""
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{Path(name).stem}-{number}{Path(name).suffix}")
        # Another task may take the name at the same time.
        with suppress(FileExistsError):
            path.touch(0o600, exist_ok=False)
            return path
    raise AssertionError("unreachable: there is always one more number")


def find_missing_path(
    service: BrowserConfig, spell: Callable[[str], str] = str
) -> tuple[str, str] | None:
    """Return the first setting whose path does not exist or cannot be read, with the problem and the remedy.

    `spell` returns how the problem names a path.
    """
    program = service.executable
    if program and os.sep in program and not Path(program).is_file():
        return (
            "executable",
            f"there is no program {spell(program)}; correct the path, or leave it out",
        )
    for key in ("init_script", "init_page"):
        paths: list[str] = getattr(service, key)
        missing = next((path for path in paths if not Path(path).is_file()), None)
        if missing is not None:
            return key, f"there is no file {spell(missing)}; correct the path"
    if service.storage_state and not Path(service.storage_state).is_file():
        return "storage_state", f"there is no file {spell(service.storage_state)}; correct the path"
    if service.secrets:
        # Imported here: most configurations have no secrets.
        from ..secrets.source import read_secrets

        try:
            read_secrets(service.secrets)
        except ValueError as error:
            return "secrets", f"{spell(service.secrets)}: {error}"
    for folder in service.uploads:
        if not Path(folder).is_dir():
            return "uploads", f"there is no folder {spell(folder)}; make it, or correct the path"
    return None
