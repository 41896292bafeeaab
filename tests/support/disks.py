"""A small disk of a test's own, which can be filled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, megabytes: int = 16) -> Generator[Path]:
    """Mount a disk of that size on a new folder. Skips the test where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounts a disk")
    path.mkdir()
    options = f"size={megabytes}m,mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounts a disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def full(disk: Path) -> Generator[None]:
    """Use up all the space of a disk while the block runs."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    try:
        yield
    finally:
        filler.unlink()
