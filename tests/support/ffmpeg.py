"""Whether Playwright's own ffmpeg is there, which videos need."""

from __future__ import annotations

import os
from pathlib import Path


def found_ffmpeg() -> bool:
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    caches = (".cache", "Library/Caches")
    folders = [Path(named)] if named else [Path.home() / c / "ms-playwright" for c in caches]
    return any(next(folder.glob("ffmpeg-*/ffmpeg-*"), None) for folder in folders)


__all__ = ["found_ffmpeg"]
