"""The paths in the configuration of a service that do not exist."""

from __future__ import annotations

import os
from pathlib import Path

from ...tools.browser import output_folder as browser_paths
from ...tools.browser.config import BrowserConfig
from ...tools.upstream.config import UpstreamConfig
from .model import ServiceConfig


def find_missing_path(service: ServiceConfig) -> tuple[str, str] | None:
    """Return the first setting whose path does not exist or cannot be read, with the problem and the remedy."""
    if isinstance(service, BrowserConfig):
        return browser_paths.find_missing_path(service)
    return _find_in_upstream(service)


def _find_in_upstream(service: UpstreamConfig) -> tuple[str, str] | None:
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
