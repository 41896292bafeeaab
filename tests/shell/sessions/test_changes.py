"""`statehold sessions close|pause|resume|purge`, beside a process that holds the sessions and beside none."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.holding import Run, create_paused, holding, left_behind, one_line

from statehold.server.exit_codes import BUSY, FAILURE, NOT_FOUND, OK, USAGE


def test_holder_pauses_resumes_and_closes(statehold: Run, data: Path) -> None:
    with holding(data, "work") as held:
        ref = held.sessions["work"]
        assert statehold("sessions", "pause", "work").out == f"{ref} (work) is paused\n"
        assert statehold("sessions", "pause", "work").out == f"{ref} (work) is paused already\n"
        assert statehold("sessions", "resume", "work").out == f"{ref} (work) is idle\n"
        assert statehold("sessions", "resume", "work").out == f"{ref} (work) is idle already\n"
        output = statehold("sessions", "close", "work", "--json")
        assert output.json == {
            "sessions": [{"session_id": ref, "name": "work", "status": "closed", "changed": True}],
            "errors": [],
        }
        assert statehold("sessions", "close", ref).out == f"{ref} (work) is closed already\n"
        assert statehold("sessions", "resume", ref).code == NOT_FOUND


def test_session_with_calls_in_flight_is_busy_until_it_is_forced(
    statehold: Run, data: Path
) -> None:
    with holding(data, "busy") as held:
        output = statehold("sessions", "pause", "busy")
        assert output.code == BUSY
        assert "1 call in flight" in one_line(output)
        output = statehold("sessions", "close", "busy", "--force")
        assert (output.code, output.out) == (OK, f"{held.sessions['busy']} (busy) is closed\n")


@pytest.mark.thorough
def test_session_of_a_process_that_does_not_answer_stays_with_it(
    statehold: Run, data: Path
) -> None:
    with holding(data, "work", "--silent") as held:
        output = statehold("sessions", "close", "work")
        assert output.code == BUSY
        assert f"holder, pid {held.process.pid}" in one_line(output)
        assert "does not answer" in statehold("sessions", "list").out
        assert statehold("sessions", "purge", "work").code == BUSY


@pytest.mark.thorough
def test_session_of_a_killed_process_can_be_paused_closed_and_purged(
    statehold: Run, data: Path
) -> None:
    sessions = left_behind(data, "one", "two")
    assert "does not answer" in statehold("sessions", "list").out
    assert statehold("sessions", "pause", "one").out == f"{sessions['one']} (one) is paused\n"
    output = statehold("sessions", "close", "one", "two")
    assert (output.code, output.out.count("is closed")) == (OK, 2)
    shown = statehold("sessions", "show", "one", "--json").json
    assert (shown["status"], shown["reason"], shown["open_in"]) == ("closed", "cli", None)
    steps = [(e["request"]["code"], e["request"]["cause"]) for e in shown["journal"]]
    assert steps[-2:] == [("T12", "cli"), ("T18", "cli")]
    assert [e["seq"] for e in shown["journal"]] == list(range(1, len(steps) + 1))
    assert shown["closed_at"] is not None

    assert statehold("sessions", "list", "--json").json["sessions"] == []
    assert len(statehold("sessions", "list", "--all", "--json").json["sessions"]) == 2
    work = data / "work" / sessions["one"] / "memory"
    files = data / "browser" / "files" / sessions["one"]
    for folder in (work, files):
        folder.mkdir(parents=True)
    assert statehold("sessions", "purge", "one").out == "1 session purged\n"
    assert not work.parent.exists()
    assert not files.exists()
    assert statehold("sessions", "show", sessions["one"]).code == NOT_FOUND
    assert statehold("sessions", "purge", "--closed").out == "1 session purged\n"
    assert statehold("sessions", "list", "--all", "--json").json["sessions"] == []


def test_an_import_starts_no_server_and_leaves_no_node_behind(
    statehold: Run, data: Path, tmp_path: Path
) -> None:
    create_paused(data, "one")
    file = str(tmp_path / "one.json")
    assert statehold("sessions", "export", "one", file).code == OK
    assert statehold("sessions", "import", file, "--name", "two").code == OK
    assert [path.name for path in (data / "nodes").iterdir() if path.suffix == ".lock"] == []


def test_open_session_is_not_purged(statehold: Run, data: Path) -> None:
    create_paused(data, "one")
    output = statehold("sessions", "purge", "one")
    assert output.code == BUSY
    assert "is paused; close it first" in one_line(output)


def test_sessions_that_nobody_used_are_purged_whether_open_or_closed(
    statehold: Run, data: Path
) -> None:
    sessions = create_paused(data, "old", "new", "older")
    assert statehold("sessions", "close", "older").code == OK
    with sqlite3.connect(data / "statehold.db") as connection:
        connection.execute("UPDATE session SET used_at = used_at - 40 * 86400 WHERE name <> 'new'")
    connection.close()
    assert statehold("sessions", "purge", "--unused-for", "41d").out == "0 sessions purged\n"
    for wrong in (["--unused-for", "soon"], ["--unused-for", "30d", "old"], []):
        assert statehold("sessions", "purge", *wrong).code == USAGE
    output = statehold("sessions", "purge", "--unused-for", "30d", "--closed")
    assert (output.code, output.out) == (OK, "1 session purged\n")
    output = statehold("sessions", "purge", "--unused-for", "30d", "--json")
    assert [each["session_id"] for each in output.json["sessions"]] == [sessions["old"]]
    left = statehold("sessions", "list", "--all", "--json").json["sessions"]
    assert [(each["name"], each["closed_at"]) for each in left] == [("new", None)]


def test_a_session_that_a_process_uses_is_not_purged(statehold: Run, data: Path) -> None:
    with holding(data, "work"):
        with sqlite3.connect(data / "statehold.db") as connection:
            connection.execute("UPDATE session SET used_at = used_at - 40 * 86400")
        connection.close()
        assert statehold("sessions", "purge", "--unused-for", "30d").out == "0 sessions purged\n"


def test_paused_session_is_resumed_by_a_running_process_else_by_a_server_that_is_started(
    statehold: Run, data: Path
) -> None:
    create_paused(data, "one")
    with holding(data) as held:
        assert statehold("sessions", "resume", "one").out.endswith("(one) is idle\n")
        shown = statehold("sessions", "show", "one", "--json").json
        assert shown["open_in"] == f"holder, pid {held.process.pid}"
    assert statehold("status", "--json").json["running"] is False
    assert statehold("sessions", "resume", "one").out.endswith("(one) is idle\n")
    shown = statehold("sessions", "show", "one", "--json").json
    assert shown["open_in"] == statehold("status", "--json").json["address"]


def test_a_missing_session_does_not_keep_others_from_being_closed(
    statehold: Run, data: Path
) -> None:
    sessions = create_paused(data, "one")
    output = statehold("sessions", "close", "none", "one", "--json")
    assert output.code == NOT_FOUND
    assert [s["session_id"] for s in output.json["sessions"]] == [sessions["one"]]
    assert [e["code"] for e in output.json["errors"]] == ["session_not_found"]


def test_store_that_cannot_be_read_is_one_line(statehold: Run, data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "statehold.db").write_bytes(b"no database at all, but long enough to be looked at" * 99)
    output = statehold("sessions", "list", "--json")
    assert output.code == FAILURE
    assert output.json["error"]["code"] == "store_unavailable"
    assert "statehold.db" in one_line(output)
