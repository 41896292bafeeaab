"""`statehold sessions share|unshare`, beside a process that holds the session and beside none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.holding import Run, create_paused, holding

from statehold.server.exit_codes import FAILURE, OK, USAGE


def test_a_session_is_shared_shown_and_unshared(statehold: Run, data: Path) -> None:
    create_paused(data, "work")
    shared = statehold("sessions", "share", "work", "--with", "ben", "--rights", "use")
    assert (shared.code, shared.out.count("shared with ben to use until")) == (OK, 1)
    group = ("--group", "crew", "--issuer", "https://login.example.org")
    output = statehold("sessions", "share", "work", *group, "--for", "30min", "--json").json
    assert (output["group"], output["issuer"], output["rights"]) == ("crew", group[3], "view")
    assert len(statehold("sessions", "show", "work", "--json").json["shares"]) == 2
    assert "group crew" in statehold("sessions", "show", "work").out
    ended = statehold("sessions", "unshare", "work", "--with", "ben")
    assert ended.out == "work is shared with ben no more\n"
    again = statehold("sessions", "unshare", "work", "--with", "ben")
    assert again.out.startswith("work was not shared with ben;")
    with holding(data, "held"):
        assert statehold("sessions", "share", "held", "--with", "ben").code == OK
        assert len(statehold("sessions", "show", "held", "--json").json["shares"]) == 1


def test_a_share_is_recorded_while_no_process_holds_its_session(
    statehold: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = create_paused(data, "work")["work"]
    monkeypatch.setenv("STATEHOLD_AUDIT", "required")
    assert statehold("sessions", "share", "work", "--with", "ben").code == OK
    entries = statehold("audit", "tail", "--json").json["entries"]
    request, result = (entry for entry in entries if entry["operation"] == "session_share")
    assert (request["event"], request["transport"]) == ("request", "command")
    assert (result["event"], result["outcome"]) == ("result", "ok")
    assert request["session_id"] == session


def test_a_wrong_share_is_refused(statehold: Run, data: Path) -> None:
    create_paused(data, "work")
    for wrong in ((), ("--with", "a", "--group", "b"), ("--with", "a", "--for", "soon")):
        assert statehold("sessions", "share", "work", *wrong).code == USAGE
    assert statehold("sessions", "share", "work", "--with", "local").code in (USAGE, FAILURE)
