"""`statehold sessions share|unshare`, beside a process that holds the session and beside none."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest
from support.holding import Run, create_paused, holding
from support.selection import matrix
from support.waiting import until_blocking

from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.sessions.json_codec import JSON
from statehold.sessions.principals.rules import Membership, PolicyTarget
from statehold.sessions.records import Principal
from statehold.sessions.store.sql import SQLStore

ISSUER = "https://login.example.org"


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


async def record_caller(data: Path, subject: str, *groups: str) -> None:
    """Have the store know a caller with its groups, as the check of a token does."""
    target = PolicyTarget.principal(Principal(issuer=ISSUER, subject=subject))
    async with SQLStore.sqlite(data) as store:
        await store.access.put_membership(target, Membership(groups), time.time())


@pytest.mark.parametrize(
    ("grantee", "warning"),
    matrix(
        (("--with", "adda"), f"{ISSUER}/adda has never been seen; near: ada"),
        (("--with", "ada"), ""),
        (("--with", "xyz"), f"{ISSUER}/xyz has never been seen"),
        (("--group", "crwe"), "group crwe has never been seen; near: crew"),
        (("--group", "crew"), ""),
        (("--group", "crew", "--issuer", "https://other.example.org"), "crew has never been seen"),
    ),
)
def test_a_share_with_a_name_that_was_never_seen_warns(
    statehold: Run, data: Path, grantee: tuple[str, ...], warning: str
) -> None:
    create_paused(data, "work")
    anyio.run(record_caller, data, "ada", "crew")
    ran = statehold("sessions", "share", "work", "--issuer", ISSUER, *grantee)
    assert ran.code == OK
    assert warning in ran.err
    assert bool(ran.err) == bool(warning)


def test_a_share_is_recorded_while_no_process_holds_its_session(
    statehold: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = create_paused(data, "work")["work"]
    monkeypatch.setenv("STATEHOLD_AUDIT", "required")
    assert statehold("sessions", "share", "work", "--with", "ben").code == OK

    def recorded() -> list[JSON]:
        entries = statehold("audit", "tail", "--json").json["entries"]
        return [entry for entry in entries if entry["operation"] == "session_share"]

    # The server that ran it writes the result a moment after its answer.
    until_blocking(lambda: len(recorded()) == 2)
    request, result = recorded()
    assert (request["event"], request["transport"]) == ("request", "command")
    assert (result["event"], result["outcome"]) == ("result", "ok")
    assert request["session_id"] == session


def test_a_wrong_share_is_refused(statehold: Run, data: Path) -> None:
    create_paused(data, "work")
    for wrong in ((), ("--with", "a", "--group", "b"), ("--with", "a", "--for", "soon")):
        assert statehold("sessions", "share", "work", *wrong).code == USAGE
    assert statehold("sessions", "share", "work", "--with", "local").code in (USAGE, FAILURE)
