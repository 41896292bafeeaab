"""All parts are recorded one after the other, and those that have a quiet run of the day and the commit are left out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import machine, record
from benchmarks.parts import PARTS

TODAY = time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime())
RECORDED: dict[str, Any] = {"commit": "c1", "taken_at": TODAY, "quiet": True}


@pytest.mark.parametrize(
    ("about", "is_recorded"),
    [
        (RECORDED, True),
        ({**RECORDED, "commit": "c2"}, False),
        ({**RECORDED, "taken_at": "2026-01-01T00:00:00Z"}, False),
        ({**RECORDED, "quiet": False}, False),
        ({"commit": "c1", "taken_at": TODAY}, False),
    ],
)
def test_only_a_quiet_run_of_the_day_and_the_commit_is_left_out(
    tmp_path: Path, about: dict[str, Any], is_recorded: bool
) -> None:
    file = tmp_path / "hop.json"
    assert not record.is_recorded(file, "c1")
    file.write_text(json.dumps({"about": about}))
    assert record.is_recorded(file, "c1") is is_recorded


def test_parts_run_in_processes_of_their_own_and_one_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = [*PARTS]
    written = tmp_path / f"{parts[0]}.json"
    written.write_text(json.dumps({"about": {**RECORDED, "commit": machine.commit()}}))
    code = "import sys; print(sys.argv[1:]); open(sys.argv[2], 'x') if sys.argv[1] != 'open' else sys.exit(3)"

    def command(part: str, file: Path, minutes: float) -> list[str]:
        return [sys.executable, "-c", code, part, str(file), str(minutes)]

    monkeypatch.setattr(record, "command_of", command)
    monkeypatch.setattr(record, "PARTS", dict.fromkeys(parts[:5], ""))
    assert record.record_all(0.5, tmp_path) == 1
    lines = capfd.readouterr().out.splitlines()
    assert f"{parts[0]}: recorded already" in lines
    assert lines[-1] == "not recorded: open"
    assert {file.stem for file in tmp_path.iterdir()} == {*parts[:5]} - {"open"}


def test_a_test_takes_the_minutes_and_other_parts_their_size() -> None:
    assert record.command_of("soak", Path("x"), 4.0)[3:6] == ["soak", "--minutes", "4"]
    assert record.command_of("keeper", Path("x"), 4.0)[3:6] == ["keeper", "--kills", "100"]
    assert record.command_of("hop", Path("x"), 4.0)[3:] == ["hop", "--when-quiet", "--json", "x"]


def test_a_busy_machine_is_waited_for_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores = [1.5, 0.4, 0.05]

    def busy_cores(seconds: float) -> float:
        return cores.pop(0)

    monkeypatch.setattr(machine, "_busy_cores", busy_cores)
    assert machine.wait_until_quiet(0.0, 0.01) == 1.5
    assert machine.wait_until_quiet(60.0, 0.01) == 0.05
    assert not cores
