"""The checks of the soak test detect their faults: each one in the files of a run."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.soak.checks import check_records
from benchmarks.soak.deployment import Deployment
from benchmarks.soak.findings import KINDS, Acknowledgement, Findings
from benchmarks.soak.programs import UPSTREAM
from benchmarks.soak.tasks import SECRET

COLUMNS = "session_id, seq, operation_id, service, status"
MORE = "epoch, kind, tool, started_at, request, result"
Row = tuple[str, int, str | None, str, str]
ANSWERED_AT = 100.0


def left_by(
    folder: Path,
    runs: Sequence[dict[str, Any]],
    journal: Sequence[Row],
    lost_commits: Sequence[tuple[float, float]] = (),
) -> Findings:
    """Check a folder with these calls of upstreams and entries of the journal; `a` and `b` were acknowledged."""
    answered = Acknowledgement("sh_1", ANSWERED_AT)
    findings = Findings(acknowledged={"a": answered, "b": answered}, lost_commits=[*lost_commits])
    deployment = Deployment(folder, findings)
    deployment.programs.logs.mkdir(parents=True)
    deployment.data.mkdir()
    deployment.truth.write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    with closing(sqlite3.connect(deployment.data / "statehold.db")) as database, database:
        database.execute(f"CREATE TABLE journal ({COLUMNS}, {MORE})")
        database.executemany(f"INSERT INTO journal ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", journal)
    check_records(deployment, findings)
    return findings


def run(operation: str, *, pid: int = 1, caller: str = "ann") -> dict[str, Any]:
    fields = {"operation": operation, "caller": caller, "of": "sh_1"}
    return {"pid": pid, "time": ANSWERED_AT, "arguments": fields}


def http_run(operation: str, connection: str) -> dict[str, Any]:
    return {**run(operation), "version": "2025-11-25", "connection": connection}


RUNS = [run("a"), run("b")]
JOURNAL: list[Row] = [("sh_1", 1, "a", "quick", "ok"), ("sh_1", 2, "b", "quick", "ok")]


@pytest.mark.parametrize(
    ("runs", "journal", "kind"),
    [
        (RUNS, JOURNAL, None),
        (RUNS[:1], JOURNAL, "lost acknowledgements"),
        (RUNS, JOURNAL[:1], "lost acknowledgements"),
        (RUNS, [JOURNAL[0], ("sh_1", 2, "b", "quick", "started")], "lost acknowledgements"),
        ([*RUNS, run("b")], JOURNAL, "double runs"),
        ([RUNS[0], run("b", caller="bob")], JOURNAL, "crossings"),
        (RUNS, [JOURNAL[0], ("sh_1", 3, "b", "quick", "ok")], "gaps in journal numbers"),
        ([RUNS[0], run("b", pid=2)], JOURNAL, None),
        ([*RUNS, run("c", pid=2), run("d")], JOURNAL, "interleaved owners"),
        ([*RUNS, http_run("c", "x"), run("d"), http_run("e", "y"), run("f")], JOURNAL, None),
        (
            [*RUNS, http_run("c", "x"), http_run("d", "y"), http_run("e", "x")],
            JOURNAL,
            "interleaved owners",
        ),
    ],
)
def test_a_fault_is_found_by_what_was_left(
    tmp_path: Path, runs: list[dict[str, Any]], journal: list[Row], kind: str | None
) -> None:
    findings = left_by(tmp_path / "soak", runs, journal)
    assert [one for one in KINDS if findings.of(one)] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("window", "kinds"),
    [
        ((ANSWERED_AT - 1, ANSWERED_AT + 1), []),
        ((ANSWERED_AT + 1, ANSWERED_AT + 2), ["lost acknowledgements", "double runs"]),
    ],
)
def test_a_loss_is_explained_by_commits_that_the_database_lost(
    tmp_path: Path, window: tuple[float, float], kinds: list[str]
) -> None:
    findings = left_by(tmp_path / "soak", [*RUNS, run("b")], JOURNAL[:1], [window])
    assert [one for one in KINDS if findings.of(one)] == kinds


def test_a_gap_after_the_last_entry_that_a_failover_kept_is_explained(tmp_path: Path) -> None:
    journal = [JOURNAL[0], ("sh_1", 3, "b", "quick", "ok")]
    findings = left_by(tmp_path / "soak", RUNS, journal)
    assert findings.of("gaps in journal numbers")
    explained = Findings(lost_entries_after={("sh_1", 1)})
    check_records(Deployment(tmp_path / "soak", explained), explained)
    assert not explained.of("gaps in journal numbers")


def test_an_entry_of_an_older_owner_is_found_after_one_of_a_newer(tmp_path: Path) -> None:
    findings = left_by(tmp_path / "soak", RUNS, JOURNAL)
    deployment = Deployment(tmp_path / "soak", findings)
    with closing(sqlite3.connect(deployment.data / "statehold.db")) as database, database:
        database.execute("UPDATE journal SET epoch = 3 - seq")
    check_records(deployment, findings)
    assert [one for one in KINDS if findings.of(one)] == ["stale writes"]


def test_a_call_that_ran_without_its_approval_and_a_text_that_is_not_sealed_are_found(
    tmp_path: Path,
) -> None:
    left_by(tmp_path / "soak", RUNS, JOURNAL)
    findings = Findings(asked={"a", "b", "never ran"}, approved={"b"})
    deployment = Deployment(tmp_path / "soak", findings)
    with closing(sqlite3.connect(deployment.data / "statehold.db")) as database, database:
        database.execute(
            "UPDATE journal SET request = ? WHERE seq = 2", [f'{{"note": "{SECRET}"}}']
        )
    check_records(deployment, findings)
    assert findings.of("runs without approval") == ["a"]
    assert findings.of("texts that are not sealed") == ["sh_1: entry 2"]


def test_a_gap_is_found_with_the_entries_around_it(tmp_path: Path) -> None:
    journal: list[Row] = [JOURNAL[0], ("sh_1", 4, "b", "quick", "ok")]
    [shown] = left_by(tmp_path / "soak", RUNS, journal).of("gaps in journal numbers")
    assert "'operation_id': 'a'" in shown
    assert "'seq': 4" in shown


CRASH = 'Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 1'
LOGGED = f"10:00:00 ERROR   statehold.server: failed\n{indent(CRASH, '  ')}"
"""The same exception as the log of a node writes it."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CRASH, [f"first: {CRASH}"]),
        (f"10:00:00 INFO    a: b\n{LOGGED}\n10:00:01 INFO    a: b\n", [f"first: {LOGGED}"]),
        (f"{LOGGED}\n{LOGGED}\n", [f"first: {LOGGED}"] * 2),
        (f"{LOGGED}\n\n  During handling:\n\n{indent(CRASH, '  ')}\n", None),
    ],
)
def test_a_traceback_is_found_with_its_event(
    tmp_path: Path, text: str, found: list[str] | None
) -> None:
    findings = Findings()
    left_by(tmp_path / "soak", RUNS, JOURNAL)
    deployment = Deployment(tmp_path / "soak", findings)
    deployment.programs.log("first").write_text(text)
    check_records(deployment, findings)
    assert findings.of("tracebacks") == (found or [f"first: {text.rstrip()}"])


def test_a_traceback_of_the_upstream_is_no_finding(tmp_path: Path) -> None:
    findings = Findings()
    left_by(tmp_path / "soak", RUNS, JOURNAL)
    deployment = Deployment(tmp_path / "soak", findings)
    deployment.programs.log(UPSTREAM).write_text(CRASH)
    check_records(deployment, findings)
    assert findings.of("tracebacks") == []


def test_a_long_traceback_is_shown_with_its_beginning_and_its_end(tmp_path: Path) -> None:
    findings = Findings()
    left_by(tmp_path / "soak", RUNS, JOURNAL)
    deployment = Deployment(tmp_path / "soak", findings)
    deeper = "  deeper\n" * 1000
    deployment.programs.log("first").write_text(f"{LOGGED}\n{deeper}  ValueError: 2\n")
    check_records(deployment, findings)
    [shown] = findings.of("tracebacks")
    assert shown.startswith("first: 10:00:00 ERROR   statehold.server: failed")
    assert shown.endswith("  ValueError: 2")
    assert len(shown) < 5000
