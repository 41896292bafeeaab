"""`statehold sessions list` and `show`: documents of server/operate/sessions.py as text, or as they are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...server.exit_codes import OK
from ...sessions.times import ago, seconds_of, span, until
from ..output import (
    Column,
    fitted_table,
    pairs,
    plain,
    say,
    say_json,
    split_owner,
)
from ..parser import CommandLine

_LABELS = ("user_id", "agent_id", "team_id", "workflow_id")
STATUS_COLOURS = {
    "active": "green",
    "idle": "cyan",
    "creating": "yellow",
    "paused": "dim",
    "error": "red",
    "closing": "yellow",
    "closed": "dim",
}


def print_list(document: Mapping[str, Any], arguments: CommandLine, data: object) -> int:
    """Print the sessions of a data folder. Return the exit code."""
    sessions: Sequence[Mapping[str, Any]] = document["sessions"]
    if arguments.json:
        say_json(document)
        return OK
    if not sessions:
        say(f"no sessions in {data}")
        return OK
    now = time.time()
    owners = [split_owner(session["owner"]) for session in sessions]
    has_owners = any(owner != ("local", "") for owner in owners)
    columns = [
        Column("ID", [session["session_id"] for session in sessions], rank=4),
        Column("NAME", [session["name"] for session in sessions], rank=9, least=12),
        Column(
            "STATUS",
            [_status(session, now) for session in sessions],
            rank=8,
            least=16,
            colours=[STATUS_COLOURS.get(session["status"], "") for session in sessions],
        ),
        Column(
            "SERVICES", [", ".join(session["services"]) for session in sessions], rank=5, least=10
        ),
        Column("USED", [ago(seconds_of(session["used_at"]), now) for session in sessions], rank=7),
        Column(
            "ENDS", [until(seconds_of(session["ends_at"]), now) for session in sessions], rank=6
        ),
        Column("OPEN IN", [session["open_in"] for session in sessions], rank=3, least=10),
        Column(
            "OWNER",
            [subject if has_owners else "" for subject, _ in owners],
            rank=8,
            least=8,
        ),
        Column("ISSUER", [issuer for _, issuer in owners], rank=2, least=10),
        Column("NAMESPACE", [session["namespace"] for session in sessions], rank=2, least=8),
    ]
    if not all(session["name"] for session in sessions):
        # Without a name the id is the only way to say which one.
        columns[0].rank = 10
    say(fitted_table(columns))
    if document["more"]:
        say(f"... and more: --limit {arguments.limit * 10} shows them")
    return OK


def _status(session: Mapping[str, Any], now: float) -> str:
    text = f"{session['status']} for {span(now - (seconds_of(session['since']) or now))}"
    return f"{text} ({session['reason']})" if session["reason"] else text


def print_session(document: Mapping[str, Any], arguments: CommandLine) -> int:
    """Print one session with its services, the end of its journal, and the stderr of its programs."""
    if arguments.json:
        say_json(document)
        return OK
    now = time.time()
    say(pairs(_details(document, now)))
    if bindings := document["services"]:
        keys = ("service", "status", "generation", "last_error")
        heads = ("SERVICE", "STATUS", "GENERATION", "LAST ERROR")
        columns = [
            Column(head, [binding[key] for binding in bindings], rank=9 - rank, least=12)
            for rank, (head, key) in enumerate(zip(heads, keys, strict=True))
        ]
        say("\n" + fitted_table(columns))
    if shares := document.get("shares"):
        say("\n" + fitted_table(_share_columns(shares, now)))
    if entries := document["journal"]:
        say("\n" + _journal(entries, now))
    for service, text in document["stderr"].items():
        lines = "\n".join(f"  {plain(line)}" for line in text.splitlines())
        say(f"\nstderr of {service}:\n{lines}")
    return OK


def _share_columns(shares: Sequence[Mapping[str, Any]], now: float) -> list[Column]:
    grantees = [
        f"group {share['group']}" if "group" in share else share["subject"] for share in shares
    ]
    ends = [until(seconds_of(share["expires_at"]), now) for share in shares]
    return [
        Column("SHARED WITH", grantees, rank=9, least=12),
        Column("ISSUER", [share["issuer"] for share in shares], rank=5, least=10),
        Column("RIGHTS", [share["rights"] for share in shares], rank=8),
        Column("ENDS", ends, rank=7),
    ]


def _details(session: Mapping[str, Any], now: float) -> list[tuple[str, Any]]:
    clocks = [(name, session[f"{name}_seconds"]) for name in ("idle", "paused", "lifetime")]
    metadata = session["metadata"]
    subject, issuer = split_owner(session["owner"])
    status = _status(session, now)
    return [
        ("id", session["session_id"]),
        ("name", session["name"]),
        ("owner", subject),
        ("issuer", issuer),
        ("namespace", session["namespace"]),
        ("status", status),
        ("open in", session["open_in"]),
        ("created", ago(seconds_of(session["created_at"]), now)),
        ("used", ago(seconds_of(session["used_at"]), now)),
        (
            "purged" if session["status"] == "closed" else "ends",
            until(seconds_of(session["ends_at"]), now),
        ),
        ("clocks", ", ".join(f"{name} {span(s) if s else 'never'}" for name, s in clocks)),
        ("parent", session["parent"]),
        *((label.removesuffix("_id"), session[label]) for label in _LABELS),
        ("metadata", json.dumps(metadata, ensure_ascii=False) if metadata else None),
    ]


def _journal(entries: Sequence[Mapping[str, Any]], now: float) -> str:
    return fitted_table(
        [
            Column("#", [entry["seq"] for entry in entries], rank=5),
            Column(
                "WHEN", [ago(seconds_of(entry["started_at"]), now) for entry in entries], rank=8
            ),
            Column("WHAT", [_describe(entry) for entry in entries], rank=9, least=20),
            Column(
                "RESULT",
                [entry["status"] for entry in entries],
                rank=7,
                colours=["red" if entry["status"] == "error" else "" for entry in entries],
            ),
            Column("TOOK", [_duration(entry) for entry in entries], rank=6),
        ]
    )


def _duration(entry: Mapping[str, Any]) -> str:
    started_at, ended_at = seconds_of(entry["started_at"]), seconds_of(entry["ended_at"])
    if started_at is None or ended_at is None or entry["kind"] != "call":
        return ""
    return f"{(ended_at - started_at) * 1000:.0f} ms"


def _describe(entry: Mapping[str, Any]) -> str:
    if entry["kind"] == "call":
        return f"{entry['service']}: {entry['tool']}"
    if entry["kind"] == "transition":
        request: Mapping[str, Any] = entry["request"] or {}
        cause = f" ({request['cause']})" if request.get("cause") else ""
        return f"{str(request.get('event')).replace('_', ' ')}{cause}"
    if entry["kind"] == "control":
        return f"control: {entry['status']}"
    return str(entry["kind"])
