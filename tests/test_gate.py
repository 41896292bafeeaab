"""The gate runs a failed test once more, alone: .ci/tests.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "tests.py"

FLAKY = """
import os
from pathlib import Path

def test_that_fails_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.write_text(str(os.getpid()))
    assert not first

def test_that_passes():
    pass
"""
BROKEN = "def test_that_fails_always():\n    assert False\n"


def gate(folder: Path, *options: str) -> tuple[int, str, str]:
    """Run the script on the tests in `folder`. Return its exit code, output and report."""
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -m pytest "$@"\n')
    uv.chmod(0o755)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, str(SCRIPT), "report", "60", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    report = folder / "report"
    return done.returncode, done.stdout, report.read_text() if report.exists() else ""


def test_a_test_that_passes_alone_is_reported_and_does_not_fail_the_gate(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    status, output, report = gate(tmp_path)
    assert status == 0, output
    assert report == "test_flaky.py::test_that_fails_once\n"


def test_a_test_that_fails_twice_fails_the_gate(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    status, output, report = gate(tmp_path)
    assert status == 1
    assert report == "test_flaky.py::test_that_fails_once\n"
    assert "failed twice: test_broken.py::test_that_fails_always" in output


def test_a_file_that_cannot_be_imported_fails_the_gate_at_once(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY + "import nothing_of_this_name\n")
    status, _, report = gate(tmp_path)
    assert status == 2
    assert not report
