"""`statehold sessions list` and `show`."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.holding import Run, create_paused, holding, one_line

from statehold.server.exit_codes import NOT_FOUND, OK, USAGE


def test_folder_without_sessions_is_not_made_by_looking(statehold: Run, data: Path) -> None:
    assert statehold("sessions", "list").out == f"no sessions in {data}\n"
    assert statehold("sessions", "list", "--json").json == {"sessions": [], "more": False}
    assert statehold("sessions", "show", "x").code == NOT_FOUND
    assert statehold("sessions", "close", "x").code == NOT_FOUND
    assert statehold("sessions", "purge", "--closed").code == OK
    assert not data.exists()


def test_list_shows_what_the_holder_knows(statehold: Run, data: Path) -> None:
    with holding(data, "work", "busy", "bob/other") as held:
        output = statehold("sessions", "list")
        assert output.code == OK
        head, *rows = output.out.splitlines()
        # Sessions with names have no end.
        assert head.split() == ["ID", "NAME", "STATUS", "USED", "OPEN", "IN", "OWNER"]
        shown = {row.split()[1]: row for row in rows}
        assert held.sessions["work"] in shown["work"]
        assert "idle for" in shown["work"]
        assert "active for" in shown["busy"]
        assert shown["other"].endswith("bob")
        assert f"holder, pid {held.process.pid}" in shown["work"]

        listed = statehold("sessions", "list", "--json").json["sessions"]
        assert {s["name"]: s["status"] for s in listed} == {
            "work": "idle",
            "busy": "active",
            "other": "idle",
        }
        only = statehold("sessions", "list", "--status", "active", "--json").json["sessions"]
        assert [s["name"] for s in only] == ["busy"]
        bob = statehold("sessions", "list", "--owner", "bob", "--json").json["sessions"]
        assert [s["owner"] for s in bob] == ["bob"]


def test_a_paused_session_that_lost_a_connection_is_listed_with_the_reason(
    statehold: Run, data: Path
) -> None:
    create_paused(data, "work")
    reason = "connection_lost: quick: the process exited with code 2"
    with closing(sqlite3.connect(data / "statehold.db")) as db, db:
        db.execute("UPDATE session SET reason = ?", [reason])
    assert f"({reason})" in statehold("sessions", "list").out
    assert f"({reason})" in statehold("sessions", "show", "work").out
    [listed] = statehold("sessions", "list", "--json").json["sessions"]
    assert (listed["status"], listed["reason"], listed["expires_at"]) == ("paused", reason, None)


@pytest.mark.thorough
def test_a_session_is_idle_since_it_was_last_used(statehold: Run, data: Path) -> None:
    with holding(data, "work"):
        with closing(sqlite3.connect(data / "statehold.db")) as db, db:
            db.execute("UPDATE session SET status_at = status_at - 7200")
        for output in (statehold("sessions", "list"), statehold("sessions", "show", "work")):
            assert "idle for" in output.out
            assert "idle for 2 h" not in output.out


def test_list_and_show_ask_the_process_that_holds_a_session(statehold: Run, data: Path) -> None:
    with holding(data, "work"):
        with closing(sqlite3.connect(data / "statehold.db")) as db, db:
            # The last use is written down at most once a minute.
            db.execute("UPDATE session SET used_at = used_at - 7200, status_at = status_at - 7200")
        listed = statehold("sessions", "list", "--json").json["sessions"][0]
        shown = statehold("sessions", "show", "work", "--json").json
        for session in (listed, shown):
            assert time.time() - datetime.fromisoformat(session["used_at"]).timestamp() < 3600


def test_list_is_cut_at_its_limit_and_says_so(statehold: Run, data: Path) -> None:
    create_paused(data, "a", "b", "c")
    output = statehold("sessions", "list", "--limit", "2")
    assert len(output.out.splitlines()) == 4
    assert output.out.splitlines()[-1] == "... and more: --limit 20 shows them"
    assert statehold("sessions", "list", "--limit", "2", "--json").json["more"] is True
    assert len(statehold("sessions", "list", "--limit", "3", "--json").json["sessions"]) == 3


def test_show_prints_the_clocks_and_the_journal(statehold: Run, data: Path) -> None:
    with holding(data, "work") as held:
        assert statehold("sessions", "pause", "work").code == OK
        output = statehold("sessions", "show", "work").out
        assert "status   paused for" in output
        assert "idle 15 min, paused never, lifetime never" in output
        assert "pause requested (cli)" in output
        assert "T08" not in output
        shown = statehold("sessions", "show", held.sessions["work"], "--json").json
        assert shown["session_id"] == held.sessions["work"]
        assert [e["request"]["code"] for e in shown["journal"]][-1] == "T08"
        times = [
            shown["used_at"],
            *(e[key] for e in shown["journal"] for key in ("started_at", "ended_at")),
        ]
        assert all(datetime.fromisoformat(moment).tzinfo is UTC for moment in times)
        last = statehold("sessions", "show", "work", "--last", "1", "--json").json
        assert len(last["journal"]) == 1


def test_name_means_the_local_session_and_is_ambiguous_otherwise(
    statehold: Run, data: Path
) -> None:
    sessions = create_paused(data, "alice/same", "bob/same", "alice/ours", "ours")
    output = statehold("sessions", "show", "same")
    assert output.code == USAGE
    assert "same is the name of 2 sessions; give the id: sh_" in one_line(output)
    shown = statehold("sessions", "show", "ours", "--json").json
    assert (shown["session_id"], shown["owner"]) == (sessions["ours"], "local")
    output = statehold("sessions", "show", "sam", "--json")
    assert output.code == NOT_FOUND
    assert output.json["error"]["code"] == "session_not_found"
