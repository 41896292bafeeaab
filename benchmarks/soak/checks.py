"""The comparison after a soak: the log of the upstreams, the journal, the states, the logs and the process table."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from mcp import Client

from ..browser.site import MODULE as SITE_MODULE
from .callers import Caller, text_of
from .findings import Findings
from .orphans import command_of, living
from .programs import UPSTREAM, Programs
from .tasks import SECRET

END_SECONDS: Final = 15.0
"""Seconds that the processes of a stopped node may take to end."""
TRACEBACK: Final = "Traceback (most recent call last)"
EVENT: Final = re.compile(r"^(?=\d\d:\d\d:\d\d )", re.MULTILINE)
"""Between two events of a log of ours; the lines of a traceback belong to the event before them."""
EVIDENCE: Final = 4000
"""Characters that are shown of one event with a traceback."""


class Records(Protocol):
    """The files and tables that a soak leaves."""

    truth: Path
    programs: Programs

    def query(self, statement: str) -> list[dict[str, Any]]: ...


async def compare_states(url: str, callers: Sequence[Caller], findings: Findings) -> None:
    """Ask a node for the state of every session, which must hold all acknowledged writes."""
    async with Client(url) as client:
        for caller in callers:
            if not caller.session:
                continue
            result = await _state(client, caller.session)
            content: dict[str, Any] = result.structured_content or {}
            state: dict[str, Any] = content.get("value") or {}
            written = int(state.get("written", 0))
            if result.is_error:
                findings.add("unreadable states", f"{caller.tag}: {text_of(result)[:300]}")
                continue
            kept = [number for number, at in caller.writes.items() if not findings.explains(at)]
            if written < max(kept, default=0):
                text = f"{caller.tag}: state {written} of {max(kept)}"
                findings.add("lost acknowledgements", text)


async def _state(client: Client, session: str) -> types.CallToolResult:
    """Return the state of a session; one whose owner has just ended is taken over within a while."""
    ends = anyio.current_time() + END_SECONDS
    while True:
        result = await client.call_tool("state_get", {"session_id": session})
        if not result.is_error or anyio.current_time() >= ends:
            return result
        await anyio.sleep(0.5)


def check_records(records: Records, findings: Findings) -> None:
    """Compare the files that a soak left when its processes were stopped."""
    _check_truth(records, findings)
    _check_journal(records, findings)
    # The upstream is no program of ours: its SDK logs a client that was killed with a traceback.
    programs = records.programs
    for log in sorted({*programs.logs.iterdir()} - {programs.log(UPSTREAM)}):
        text = log.read_text(encoding="utf-8", errors="replace")
        for event in EVENT.split(text):
            if TRACEBACK in event:
                findings.add("tracebacks", f"{log.stem}: {_bounded(event.rstrip())}")


def _bounded(text: str) -> str:
    """Return a text, or its beginning and its end if it is long: they hold the cause and the place of an error."""
    if len(text) <= EVIDENCE:
        return text
    return f"{text[: EVIDENCE // 4]}\n ...\n{text[-EVIDENCE * 3 // 4 :]}"


async def check_processes(findings: Findings, ours: Collection[str] = (SITE_MODULE,)) -> None:
    """Look for processes that outlived the nodes, and kill them; those with `ours` in their command line are the soak's."""

    def left() -> list[tuple[int, str]]:
        commands = [(process.pid, command_of(process)) for process in living()]
        return [(pid, line) for pid, line in commands if not any(part in line for part in ours)]

    with anyio.move_on_after(END_SECONDS):
        while left():  # noqa: ASYNC110 - it is the kernel that ends them
            await anyio.sleep(0.1)
    orphans = dict(left())
    for process in living():
        if process.pid in orphans:
            findings.add("orphans", f"{process.pid}: {orphans[process.pid][:200]}")
            process.kill()


def read_truth(records: Records) -> list[dict[str, Any]]:
    """Return the calls that the upstreams have run, in their order."""
    lines = records.truth.read_text(encoding="utf-8").splitlines()
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [entry for entry in entries if "event" not in entry and entry.get("arguments")]


def _check_truth(records: Records, findings: Findings) -> None:
    calls = read_truth(records)
    runs: defaultdict[str, list[float]] = defaultdict(list)
    callers: defaultdict[int, set[str]] = defaultdict(set)
    for entry in calls:
        given: dict[str, Any] = entry["arguments"]
        if "operation" in given:
            runs[given["operation"]].append(entry.get("time", 0.0))
        if "caller" in given and "version" not in entry:
            # A stdio upstream belongs to one session.
            callers[entry["pid"]].add(given["caller"])
    findings.calls["runs"] = sum(map(len, runs.values()))
    for operation, times in runs.items():
        # Without its receipt, which the database may have lost, a call that is sent again runs again.
        if len(times) > 1 and not any(map(findings.explains, times[:-1])):
            findings.add("double runs", f"{operation}: {len(times)} times")
    for operation in findings.asked - findings.approved:
        if operation in runs:
            findings.add("runs without approval", operation)
    for pid, names in callers.items():
        if len(names) > 1:
            findings.add("crossings", f"upstream {pid} served {sorted(names)}")
    check_order(calls, findings)
    recorded = {row["operation_id"] for row in records.query(COUNTED)}
    for operation in findings.acknowledged:
        if operation in recorded and operation not in runs:
            findings.add("lost acknowledgements", f"{operation}: no upstream ran it")


def check_order(calls: Iterable[dict[str, Any]], findings: Findings) -> None:
    """Find effects of an older owner after one of a newer: each owner has its own process or connection for a session.

    The log has the order of the effects, as each is one write to its end.
    """
    replaced: defaultdict[tuple[str, bool], list[object]] = defaultdict(list)
    for entry in calls:
        if (session := entry["arguments"].get("of")) is None:
            continue
        user: object = entry.get("connection") or entry["pid"]
        users = replaced[session, "connection" in entry]
        if user in users[:-1]:
            text = f"{session}: {user} was used again after {users[-1]} ({entry['arguments']})"
            findings.add("interleaved owners", text)
        elif user not in users:
            users.append(user)


COUNTED: Final = "SELECT operation_id FROM journal WHERE service IN ('quick', 'web', 'boxed')"
SEALED: Final = f"SELECT session_id, seq FROM journal WHERE request LIKE '%{SECRET}%' OR result LIKE '%{SECRET}%'"


JOURNAL: Final = (
    "SELECT session_id, seq, epoch, kind, tool, operation_id, status, started_at FROM journal "
    "ORDER BY session_id, seq"
)


def _check_journal(records: Records, findings: Findings) -> None:
    for row in records.query(SEALED):
        findings.add("texts that are not sealed", f"{row['session_id']}: entry {row['seq']}")
    rows = records.query(JOURNAL)
    statuses = {row["operation_id"]: row["status"] for row in rows if row["operation_id"]}
    for operation, (session, at) in findings.acknowledged.items():
        if statuses.get(operation) != "ok" and not findings.explains(at):
            text = f"{operation} of {session}: {statuses.get(operation)} in the journal"
            findings.add("lost acknowledgements", text)
    for session, entries in groupby(rows, key=lambda row: row["session_id"]):
        for before, after in pairwise([{"seq": 0, "epoch": 0}, *entries]):
            is_explained = (session, before["seq"]) in findings.lost_entries_after
            if after["seq"] != before["seq"] + 1 and not is_explained:
                text = f"{session}: nothing between {before} and {after}"
                findings.add("gaps in journal numbers", text)
            if (after["epoch"] or 0) < (before["epoch"] or 0):
                text = f"{session}: {after} of an older owner after {before}"
                findings.add("stale writes", text)
