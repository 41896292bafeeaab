"""With a required audit log nothing runs that is not recorded, also when the server is killed or its store fails."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.gateway_process import JSON, Way, kill, opened_session, service, serving, toml
from support.waiting import until

from statehold.sessions.principals.audit_log import AuditHead, AuditRow, ChainCheck

ROUNDS = int(os.environ.get("AUDIT_KILLS", "12"))


def write_config(folder: Path, log: Path) -> Path:
    config = folder / "statehold.toml"
    counter = service("quick", "--log", str(log))
    settings: JSON = {"audit": "required", "audit_arguments": True, "services": {"quick": counter}}
    config.write_text(toml(settings))
    return config


def read_log(path: Path) -> list[JSON]:
    """Return the calls that the service began to run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_audit(data: Path) -> tuple[list[JSON], list[str]]:
    """Return the entries, and the faults of their chain."""
    with closing(sqlite3.connect(f"file:{data / 'statehold.db'}?mode=ro", uri=True)) as database:
        rows = [
            AuditRow(*row)
            for row in database.execute("SELECT seq, document, hash FROM audit ORDER BY seq")
        ]
        head = AuditHead(*database.execute("SELECT seq, hash FROM audit_head").fetchone())
    check = ChainCheck()
    check.read(rows)
    check.end(head)
    return [json.loads(row.document) for row in rows], check.faults


async def call_on(client: Client, session: str, numbers: list[int]) -> None:
    """Call one after the other until the server is gone. The numbers that were used are removed."""
    while numbers:
        await client.call_tool("inc", {"session_id": session, "n": numbers.pop()})


@pytest.mark.thorough
async def test_no_call_ran_unrecorded_when_the_server_was_killed(tmp_path: Path) -> None:
    log, data = tmp_path / "calls.jsonl", tmp_path / "data"
    config = write_config(tmp_path, log)
    numbers = list(range(1_000_000, 0, -1))
    for round_number in range(ROUNDS):
        with serving(config, data) as server:
            way = Way("http", "modern", config, data, url=server.url)
            before = len(read_log(log))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_work, way, numbers)
                enough = before + 3 + round_number % 5
                await until(lambda enough=enough: len(read_log(log)) >= enough, within=60)
                kill(server)
                tasks.cancel_scope.cancel()
    entries, faults = read_audit(data)
    assert faults == []
    recorded = {
        entry["arguments"]["n"]
        for entry in entries
        if entry.get("tool") == "inc" and "arguments" in entry
    }
    ran = {call["arguments"]["n"] for call in read_log(log)}
    assert len(ran) >= 3 * ROUNDS
    assert ran <= recorded


async def _work(way: Way, numbers: list[int]) -> None:
    with suppress(Exception):
        async with way.connect() as client:
            session = await opened_session(client)
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(call_on, client, session, numbers)


async def test_a_call_that_cannot_be_recorded_does_not_run(tmp_path: Path) -> None:
    log, data = tmp_path / "calls.jsonl", tmp_path / "data"
    config = write_config(tmp_path, log)
    with serving(config, data) as server:
        way = Way("http", "modern", config, data, url=server.url)
        async with way.connect() as client:
            session = await opened_session(client)
            await client.call_tool("inc", {"session_id": session, "n": 1})
            with closing(sqlite3.connect(data / "statehold.db", isolation_level=None)) as blocker:
                blocker.execute("BEGIN IMMEDIATE")
                refused = await client.call_tool("inc", {"session_id": session, "n": 2})
                blocker.execute("ROLLBACK")
            assert refused.is_error
            text: Any = refused.content[0]
            assert text.text.startswith("service_unavailable")
            await client.call_tool("inc", {"session_id": session, "n": 3})
    assert [call["arguments"]["n"] for call in read_log(log)] == [1, 3]
