"""The gate runs a failed test once more, alone, and bounds the time of a selection: .ci/tests.py."""

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
NAMED = """
from pathlib import Path
import pytest

seen = Path("seen")

@pytest.mark.parametrize("way", [1], ids=["b-a" if seen.exists() else "a-b"])
def test_that_fails_once(way):
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BROKEN = "def test_that_fails_always():\n    assert False\n"


def gate(folder: Path, *options: str) -> tuple[int, str, str]:
    """Run the script on the tests in `folder`. Return its exit code, output and report."""
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -m pytest -p xdist "$@"\n')
    uv.chmod(0o755)
    (folder / "pytest.ini").write_text("[pytest]\n")
    # The plugins that are installed here would take most of the time.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **plugins, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, str(SCRIPT), "some", "report", "60", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    report = folder / "report"
    return done.returncode, done.stdout, report.read_text() if report.exists() else ""


def test_a_test_that_passes_alone_is_reported_and_does_not_fail_the_gate(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    status, output, report = gate(tmp_path)
    assert status == 0, output
    assert report.startswith("test_flaky.py::test_that_fails_once\n")
    assert "assert not first" in report
    assert "gate: some: 2 tests in " in output
    assert output.index("test_that_fails_once") < output.rindex("runs once more alone")


def test_a_test_whose_name_has_its_parameters_in_another_order_runs_again(tmp_path: Path):
    (tmp_path / "test_named.py").write_text(NAMED)
    status, output, report = gate(tmp_path)
    assert status == 0, output
    assert report.startswith("test_named.py::test_that_fails_once[a-b]\n")


def test_a_selection_that_takes_longer_than_its_bound_fails_the_gate(tmp_path: Path):
    (tmp_path / "test_quick.py").write_text("def test_that_passes():\n    pass\n")
    status, output, _ = gate(tmp_path, "--bound=0")
    assert status == 1
    assert "0 s are allowed" in output


def test_a_test_that_fails_twice_fails_the_gate(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    status, output, report = gate(tmp_path)
    assert status == 1
    assert report.startswith("test_flaky.py::test_that_fails_once\n")
    assert "failed twice: test_broken.py::test_that_fails_always" in output


def test_a_file_that_cannot_be_imported_fails_the_gate_at_once(tmp_path: Path):
    (tmp_path / "test_flaky.py").write_text(FLAKY + "import nothing_of_this_name\n")
    status, _, report = gate(tmp_path)
    assert status == 2
    assert not report
