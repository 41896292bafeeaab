"""An ffmpeg that films, put where Playwright looks for its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from statehold.tools.browser.process.executables import Machine, ffmpeg_path


def put_ffmpeg(folder: Path) -> None:
    """Put one into the folder that PLAYWRIGHT_BROWSERS_PATH names."""
    program = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    path = ffmpeg_path(Machine(env={"PLAYWRIGHT_BROWSERS_PATH": str(folder)}))
    path.parent.mkdir(parents=True)
    path.symlink_to(program)


def about(video: Path) -> dict[str, Any]:
    """Return ffmpeg's description of a video that it can read: its codec, size and duration."""
    frames = pytest.importorskip("imageio_ffmpeg").read_frames(video)
    with closing(frames):
        return next(frames)


__all__ = ["about", "put_ffmpeg"]
