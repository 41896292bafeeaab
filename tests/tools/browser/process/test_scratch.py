"""The folders of drivers: private, separate, short enough for a socket, and removed whichever process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from statehold.tools.browser.process.scratch import MAX_PATH_BYTES, ScratchFolder

HOLDER = """
import sys
from pathlib import Path
from statehold.tools.browser.process.scratch import ScratchFolder
scratch = ScratchFolder.make(Path(sys.argv[1]))
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        yield Path(folder)


def test_the_folder_of_a_killed_process_is_removed_by_the_next(short: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(short)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        ScratchFolder.make(short).remove()
        assert left.is_dir()
        process.kill()
        process.wait(10)
    ScratchFolder.make(short).remove()
    assert not left.exists()


def test_path_too_long_for_a_socket_is_in_the_temporary_folder(tmp_path: Path) -> None:
    scratch = ScratchFolder.make(tmp_path / ("deep" * 20))
    assert len(os.fsencode(scratch.path)) <= MAX_PATH_BYTES
    scratch.remove()
    assert not scratch.path.exists()
