"""The comparison after a soak: the log of the upstreams, the journal, the states, the logs and the process table."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby, pairwise
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import Client

from ..browser.site import MODULE as SITE_MODULE
from .callers import Caller, text_of
from .deployment import UPSTREAM, Deployment
from .findings import Findings
from .orphans import command_of, living

END_SECONDS: Final = 15.0
"""Seconds that the processes of a stopped node may take to end."""
TRACEBACK: Final = "Traceback (most recent call last)"
EVENT: Final = re.compile(r"^(?=\d\d:\d\d:\d\d )", re.MULTILINE)
"""Between two events of a log of ours; the lines of a traceback belong to the event before them."""
EVIDENCE: Final = 4000
"""Characters that are shown of one event with a traceback."""


async def compare_states(
    deployment: Deployment, callers: Sequence[Caller], findings: Findings
) -> None:
    """Ask a node for the state of every session, which must hold all acknowledged writes."""
    async with Client(deployment.nodes[0].url) as client:
        for caller in callers:
            if not caller.session:
                continue
            result = await _state(client, caller.session)
            content: dict[str, Any] = result.structured_content or {}
            state: dict[str, Any] = content.get("value") or {}
            written = int(state.get("written", 0))
            if result.is_error:
                findings.add("unreadable states", f"{caller.tag}: {text_of(result)[:300]}")
            elif written < caller.written:
                text = f"{caller.tag}: state {written} of {caller.written}"
                findings.add("lost acknowledgements", text)


async def _state(client: Client, session: str) -> types.CallToolResult:
    """Return the state of a session; one whose owner has just ended is taken over within a while."""
    ends = anyio.current_time() + END_SECONDS
    while True:
        result = await client.call_tool("state_get", {"session_id": session})
        if not result.is_error or anyio.current_time() >= ends:
            return result
        await anyio.sleep(0.5)


def check_records(deployment: Deployment, findings: Findings) -> None:
    """Compare the files that a soak left when its processes were stopped."""
    _check_truth(deployment, findings)
    _check_journal(deployment, findings)
    # The upstream is no program of ours: its SDK logs a client that was killed with a traceback.
    for log in sorted({*deployment.logs.iterdir()} - {deployment.log(UPSTREAM)}):
        text = log.read_text(encoding="utf-8", errors="replace")
        for event in EVENT.split(text):
            if TRACEBACK in event:
                findings.add("tracebacks", f"{log.stem}: {_bounded(event.rstrip())}")


def _bounded(text: str) -> str:
    """Return a text, or its beginning and its end if it is long: they hold the cause and the place of an error."""
    if len(text) <= EVIDENCE:
        return text
    return f"{text[: EVIDENCE // 4]}\n ...\n{text[-EVIDENCE * 3 // 4 :]}"


async def check_processes(findings: Findings) -> None:
    """Look for processes that outlived the nodes, and kill them."""
    with anyio.move_on_after(END_SECONDS):
        while any(SITE_MODULE not in command_of(process) for process in living()):  # noqa: ASYNC110
            await anyio.sleep(0.1)
    for process in living():
        if SITE_MODULE not in (command := command_of(process)):
            findings.add("orphans", f"{process.pid}: {command[:200]}")
            process.kill()


def _check_truth(deployment: Deployment, findings: Findings) -> None:
    runs: Counter[str] = Counter()
    callers: defaultdict[int, set[str]] = defaultdict(set)
    for line in deployment.truth.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        given: dict[str, Any] = entry.get("arguments") or {}
        if "operation" not in given or "event" in entry:
            continue
        runs[given["operation"]] += 1
        if "version" not in entry:
            # A stdio upstream belongs to one session.
            callers[entry["pid"]].add(given["caller"])
    findings.calls["runs"] = runs.total()
    for operation, count in runs.items():
        if count > 1:
            findings.add("double runs", f"{operation}: {count} times")
    for pid, names in callers.items():
        if len(names) > 1:
            findings.add("crossings", f"upstream {pid} served {sorted(names)}")
    with closing(_database(deployment)) as database:
        recorded = {row[0] for row in database.execute(COUNTED)}
    for operation in findings.acknowledged:
        if operation in recorded and operation not in runs:
            findings.add("lost acknowledgements", f"{operation}: no upstream ran it")


COUNTED: Final = "SELECT operation_id FROM journal WHERE service IN ('quick', 'web')"


JOURNAL: Final = (
    "SELECT session_id, seq, epoch, kind, tool, operation_id, status, started_at FROM journal "
    "ORDER BY session_id, seq"
)


def _check_journal(deployment: Deployment, findings: Findings) -> None:
    with closing(_database(deployment)) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute(JOURNAL)]
    statuses = {row["operation_id"]: row["status"] for row in rows if row["operation_id"]}
    for operation, session in findings.acknowledged.items():
        if statuses.get(operation) != "ok":
            text = f"{operation} of {session}: {statuses.get(operation)} in the journal"
            findings.add("lost acknowledgements", text)
    for session, entries in groupby(rows, key=lambda row: row["session_id"]):
        for before, after in pairwise([{"seq": 0}, *entries]):
            if after["seq"] != before["seq"] + 1:
                text = f"{session}: nothing between {before} and {after}"
                findings.add("gaps in journal numbers", text)


def _database(deployment: Deployment) -> sqlite3.Connection:
    file = next(deployment.data.glob("*.db"))
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True)
