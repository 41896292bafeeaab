"""The results that client and server share, when one of them is older than the other."""

from __future__ import annotations

from dataclasses import fields

import pytest

from statehold.client import History, HistoryEntry, MergeResult, ServiceStatus, SessionInfo
from statehold.sessions.json_codec import JSON
from statehold.tools.own.results import parse_result
from statehold.tools.own.session_tools import LISTED

LISTED_SESSION: JSON = {
    "session_id": "sh_1",
    "namespace": "",
    "status": "idle",
    "created_at": "2026-07-28T12:00:00.000Z",
    "used_at": "2026-07-28T12:00:00.000Z",
    "metadata": {"name": None},
}
SERVICE: JSON = {"service": "one", "status": "open", "connected": True, "generation": 1}


def test_members_of_a_newer_server_are_ignored() -> None:
    content = {**LISTED_SESSION, "mood": "calm", "services": [{**SERVICE, "mood": "calm"}]}
    info = parse_result(SessionInfo, content)
    assert info.session_id == "sh_1"
    assert [each.service for each in info.services] == ["one"]
    merge = {"version": 2, "conflicts": [{"path": "/a", "source": "x", "taken": True, "by": 1}]}
    assert parse_result(MergeResult, {**merge, "conflict_count": 1}).conflicts[0].path == "/a"


def test_members_that_may_be_null_may_be_missing() -> None:
    info = parse_result(SessionInfo, LISTED_SESSION)
    assert (info.name, info.reason, info.expires_at, info.services) == (None, None, None, [])
    assert parse_result(ServiceStatus, {"service": "one", "status": "starting"}).problem is None
    assert parse_result(History, {"entries": []}).next_cursor is None
    with pytest.raises(TypeError):
        parse_result(SessionInfo, {"session_id": "sh_1"})


def test_further_members_of_an_entry_are_in_more() -> None:
    entry = {"seq": 1, "kind": "transition", "at": "2026-07-28T12:00:00Z", "to": "idle"}
    [parsed] = parse_result(History, {"entries": [entry], "next_cursor": None}).entries
    assert parsed == HistoryEntry(1, "transition", "2026-07-28T12:00:00Z", more={"to": "idle"})


def test_a_list_of_sessions_has_members_of_their_description_only() -> None:
    assert set(LISTED) < {each.name for each in fields(SessionInfo)}
