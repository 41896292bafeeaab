"""The paths in the configuration of a service that do not exist."""

from __future__ import annotations

from ...tools.browser import missing_paths as of_browser
from ...tools.browser.config import BrowserConfig
from ...tools.upstream import missing_paths as of_upstream
from .model import ServiceConfig


def find_missing_path(service: ServiceConfig) -> tuple[str, str] | None:
    """Return the first setting whose path does not exist or cannot be read, with the problem and the remedy."""
    if isinstance(service, BrowserConfig):
        return of_browser.find_missing_path(service)
    return of_upstream.find_missing_path(service)


__all__ = ["find_missing_path"]
