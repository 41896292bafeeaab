"""The `statehold` command in this process, on a data folder of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.gateway_fixtures import *
from support.holding import Output, Run

from statehold.shell.main import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def statehold(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command in this process, on a data folder of the test's own."""
    for variable in [name for name in os.environ if name.startswith("STATEHOLD_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("STATEHOLD_DATA", str(data))

    def run(*words: str) -> Output:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return run
