"""The paths in the configuration of the browser that do not exist or cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .config import BrowserConfig


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
        from .secrets.source import read_secrets

        try:
            read_secrets(service.secrets)
        except ValueError as error:
            return "secrets", f"{spell(service.secrets)}: {error}"
    for folder in service.uploads:
        if not Path(folder).is_dir():
            return "uploads", f"there is no folder {spell(folder)}; make it, or correct the path"
    return None
