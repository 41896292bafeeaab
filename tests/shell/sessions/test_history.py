"""`statehold sessions history` and `summary`, beside a server that holds the session and beside none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support import commands
from support.gateway_process import JSON, Way, opened_session, serving

from statehold.server.exit_codes import NOT_FOUND, OK, USAGE

PASSWORD = "hunter2"

STEERING = "\x1b[2J"
"""A text that would clear a terminal."""


class DataFolder(commands.DataFolder):
    """Runs the commands on a session that has a history."""

    async def fill(self, url: str) -> None:
        way = Way("http", "modern", self.config, self.data, url=url)
        with anyio.fail_after(30):
            async with way.connect() as client:
                session = await opened_session(client, name="work", state={"cart": []})
                one: JSON = {"session_id": session}
                meta: Any = {"statehold/run_id": "r1", "statehold/operation_id": "op"}
                await client.call_tool("inc", {**one, "password": PASSWORD}, meta=meta)
                await client.call_tool("get", one)
                for role, content in (("system", "be kind"), ("user", "invoice, invoice")):
                    await client.call_tool(
                        "session_note", {**one, "role": role, "content": content}
                    )
                summary = {**one, "text": STEERING + "We counted.", "topics": ["counting"]}
                await client.call_tool("session_summary", summary)


@pytest.fixture
def folder_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DataFolder:
    return DataFolder(tmp_path, capsys)


@pytest.mark.thorough
def test_a_history_is_shown_beside_a_server_and_without_one(folder_cli: DataFolder) -> None:
    with serving(folder_cli.config, folder_cli.data) as running:
        anyio.run(folder_cli.fill, running.url)
        _look(folder_cli)
    _look(folder_cli)
    code, out, _ = folder_cli.run("history", "work")
    assert code == OK
    assert "compacted" not in out
    for text in ("quick: inc", "invoice, invoice", "T02 opened", "r1"):
        assert text in out
    assert PASSWORD not in out
    last = folder_cli.json("history", "work", "--last", "2", "--kind", "call", "--kind", "message")
    assert [entry["role"] for entry in last["entries"]] == ["system", "user"]
    older = folder_cli.json("history", "work", "--kind", "call", "--cursor", last["next_cursor"])
    assert [entry["tool"] for entry in older["entries"]] == ["inc", "get"]
    assert older["next_cursor"] is None


def _look(folder_cli: DataFolder) -> None:
    calls = folder_cli.json("history", "work", "--kind", "call")["entries"]
    assert [(entry["tool"], entry["status"]) for entry in calls] == [("inc", "ok"), ("get", "ok")]
    assert calls[0]["operation_id"] == "op"
    assert calls[0]["arguments"]["password"] == "[redacted]"
    messages = folder_cli.json("history", "work", "--kind", "message", "--skip-role", "system")[
        "entries"
    ]
    assert [entry["content"] for entry in messages] == ["invoice, invoice"]
    [run] = folder_cli.json("history", "work", "--last-runs", "1", "--tool", "inc")["entries"]
    assert run["run_id"] == "r1"
    document = folder_cli.json("summary", "work")
    assert document["summary"]["text"] == STEERING + "We counted."
    assert document["digest"]["messages"] == {"system": 1, "user": 1}
    code, out, _ = folder_cli.run("summary", "work")
    assert code == OK
    for words in ("We counted.", "Topics: counting.", "2 calls", "State (version 0): cart."):
        assert words in out
    assert "\x1b" not in out


def test_the_json_of_a_history_has_facts(folder_cli: DataFolder) -> None:
    with serving(folder_cli.config, folder_cli.data) as running:
        anyio.run(folder_cli.fill, running.url)
    calls = folder_cli.json("history", "work", "--kind", "call")["entries"]
    assert [entry["facts"]["values"]["/count"] for entry in calls] == [1, 1]


@pytest.mark.thorough
def test_mistakes_are_reported(folder_cli: DataFolder) -> None:
    for words in (["history", "none"], ["summary", "none"]):
        assert folder_cli.run(*words)[0] == NOT_FOUND
    with serving(folder_cli.config, folder_cli.data) as running:
        anyio.run(folder_cli.fill, running.url)
        code, _, err = folder_cli.run("history", "work", "--cursor", "x")
        assert (code, err.count("\n")) == (USAGE, 1)
        code, out, _ = folder_cli.run("history", "work", "--tool", "none")
        assert (code, out) == (OK, "no such entries\n")
        assert folder_cli.run("history", "none")[0] == NOT_FOUND
