"""The paths in the configuration of an upstream that do not exist."""

from __future__ import annotations

import os
from pathlib import Path

from .config import UpstreamConfig


def find_missing_path(service: UpstreamConfig) -> tuple[str, str] | None:
    cwd = service.cwd
    if cwd and not _has_placeholder(cwd) and not Path(cwd).is_dir():
        return "cwd", f"there is no folder {cwd}; make it, or correct the path"
    command = service.command
    if (
        command
        and os.sep in command
        and not _has_placeholder(command)
        and not Path(command).is_file()
    ):
        return "command", f"there is no program {command}; correct the path"
    return None


def _has_placeholder(path: str) -> bool:
    """Whether a path has placeholders, whose values differ for each session."""
    return any(name in path for name in ("{dir}", "{session_id}", "{session_name}"))


__all__ = ["find_missing_path"]
