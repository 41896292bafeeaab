"""`statehold sessions import --from`: sessions that agentscope and agno wrote. The files of `foreign/` are theirs."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync
from support import commands
from support.selection import matrix

from statehold.client.integrations.agentscope import JSONSession, StateModule
from statehold.server.cli.main import main
from statehold.server.exit_codes import FAILURE, USAGE

FOREIGN = Path(__file__).parent / "foreign"


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> commands.DataFolder:
    return commands.DataFolder(tmp_path, capsys)


@pytest.fixture(params=["agno_2", "agno_3"])
def agno(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return database(tmp_path, request.param)


def database(folder: Path, name: str) -> Path:
    file = folder / f"{name}.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((FOREIGN / f"{name}.sql").read_text(encoding="utf-8"))
    return file


def entries(cli: commands.DataFolder, name: str) -> Iterator[tuple[Any, ...]]:
    for entry in cli.json("history", name, "--last", "100")["entries"]:
        if entry["kind"] == "message":
            yield entry["role"], entry["content"]
        elif entry["kind"] == "call":
            yield entry["tool"], entry["arguments"], entry["status"], entry["result"]["content"]


def test_sessions_of_agno_come_with_state_messages_calls_and_summary(
    cli: commands.DataFolder, agno: Path
) -> None:
    before = agno.read_bytes()
    report = cli.json("import", "--from", "agno", str(agno))
    names = {each["name"]: each for each in report["imported"]}
    assert {"shopping", "poems"} <= names.keys()
    assert (report["unchanged"], report["skipped"]) == ([], [])
    assert names["poems"]["left_out"] == ["runs of team members (1)"]

    shopping = cli.json("export", "shopping", str(cli.folder / "shopping.json")) and json.loads(
        (cli.folder / "shopping.json").read_text()
    )
    about = shopping["session"]
    assert (about["user_id"], about["agent_id"], about["status"]) == ("ada", "shopper", "paused")
    assert about["metadata"]["plan"] == "basic"
    assert about["metadata"]["agno"]["session_name"] == "Groceries"
    assert cli.json("state", "shopping")["value"] == {"shopping_list": ["milk"]}
    summary = cli.json("summary", "shopping")["summary"]
    assert summary["text"].startswith("Ada keeps a shopping list")
    assert (summary["topics"], summary["updated_at"][:10]) == (["shopping"], "2026-11-01")
    system, *rest = entries(cli, "shopping")
    assert "You keep a shopping list." in system[1]
    assert rest == [
        ("user", "Add milk"),
        ("add", {"item": "milk"}, "ok", ["added milk"]),
        ("assistant", "Milk is on the list."),
        ("user", "Show the list"),
        ("assistant", "Your list: milk."),
    ]
    assert "agno: add" in cli.run("history", "shopping")[1]
    runs = [entry for entry in shopping["journal"] if entry["kind"] == "run"]
    assert [run["status"] for run in runs] == ["completed", "completed"]
    assert {entry["run"] for entry in shopping["journal"]} - {None} == {run["run"] for run in runs}
    assert agno.read_bytes() == before


def test_a_failed_run_of_agno_stays_one(cli: commands.DataFolder, tmp_path: Path) -> None:
    cli.json("import", "--from", "agno", str(database(tmp_path, "agno_3")))
    (run,) = cli.json("history", "failed", "--kind", "run")["entries"]
    assert (run["status"], run["error"]) == ("error", "the model is away")
    assert list(entries(cli, "failed")) == [("user", "Hello")]


def test_an_import_that_is_repeated_changes_nothing(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_3")
    first = cli.json("import", "--from", "agno", str(file))
    again = cli.json("import", "--from", "agno", str(file))
    assert (again["imported"], again["skipped"]) == ([], [])
    assert {each["session_id"] for each in again["unchanged"]} == {
        each["session_id"] for each in first["imported"]
    }
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("""UPDATE agno_sessions SET metadata = '{"plan": "gold"}'""")
        connection.execute("UPDATE agno_sessions SET session_data = '[' WHERE session_id = 'poems'")
    code, out, _ = cli.run("import", "--from", "agno", str(file))
    assert code == FAILURE
    assert "0 of 3 sessions imported, 3 skipped" in out
    assert "shopping was skipped: it has changed since" in out
    assert "poems was skipped: it is not as agno writes it" in out
    cli.run("close", "shopping")
    code, out, _ = cli.run("import", "--from", "agno", str(file))
    assert "0 of 3 sessions imported, 3 skipped" in out
    code, _, _ = cli.run("delete", "shopping", "--force")
    code, out, _ = cli.run("import", "--from", "agno", str(file))
    assert "1 of 3 sessions imported, 2 skipped" in out


class Module(StateModule):
    """A module with the attributes of agentscope's ReActAgent."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.toolkit = Toolkit()
        self.name = ""
        self.register_state("name")


class Memory(StateModule):
    def __init__(self) -> None:
        self.content: list[Any] = []
        self.register_state("content")


class Toolkit(StateModule):
    def __init__(self) -> None:
        self.active_groups: list[str] = []
        self.register_state("active_groups")


async def test_sessions_of_agentscope_are_those_of_its_api_here(tmp_path: Path) -> None:
    """The program that changes its import finds the states that the other one saved."""
    folder = tmp_path / "sessions"
    shutil.copytree(FOREIGN / "agentscope", folder)
    words = ["sessions", "import", "--from", "agentscope", str(folder), "--users"]
    flags = ["--data", str(folder / "statehold")]
    # The other file has no user in its name.
    assert await run_sync(main, [*words, *flags]) == FAILURE
    session, agent = JSONSession(save_dir=folder), Module()
    try:
        await session.load_session_state(session_id="main", user_id="bob", agent=agent)
    finally:
        session.close()
    assert agent.name == "Friday"
    message, _ = agent.memory.content[0]
    assert message["content"] == "I am Alice"


def test_files_that_hold_no_session_are_named_with_the_reason(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    shutil.copytree(FOREIGN / "agentscope", folder)
    (folder / "torn.json").write_text('{"agent": {')
    (folder / "list.json").write_text("[]")
    (folder / "half.json").write_text('{"agent": 1}')
    (folder / "large.json").write_text(json.dumps({"agent": {"text": "x" * (1 << 20)}}))
    (folder / f"{'l' * 120}.json").write_text("{}")
    (folder / "windows.json").write_bytes(b'\xef\xbb\xbf{"agent": {"name": "Saturday"}}')
    (folder / "notes.txt").write_text("no session")
    code, out, _ = cli.run("import", "--from", "agentscope", str(folder))
    assert code == FAILURE
    first, *reasons = out.splitlines()
    assert first.endswith("3 of 8 sessions imported, 5 skipped")
    assert [line.split()[0] for line in reasons] == [
        "half.json",
        "large.json",
        "list.json",
        f"{'l' * 120}.json",
        "torn.json",
    ]
    assert "JSON" in reasons[-1]
    assert reasons[-2].endswith("its id has 120 characters; an import takes at most 117")
    modules = cli.json("state", "alice")["value"]["modules"]
    assert modules["board"]["tasks"] == ["greet"]
    state = cli.json("state", "windows")["value"]
    assert state == {"modules": {"agent": {"name": "Saturday"}}}
    code, out, _ = cli.run("import", "--from", "agentscope", str(folder))
    assert "0 of 8 sessions imported, 3 imported before, 5 skipped" in out


def test_a_source_that_cannot_be_read_is_one_line(cli: commands.DataFolder, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database")
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).close()
    os.mkfifo(tmp_path / "pipe.db")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE s (session_id, session_type, session_data)")
    for words in (
        ("--from", "agno", str(text)),
        ("--from", "agno", str(empty)),
        ("--from", "agno", str(other)),
        ("--from", "agno", str(tmp_path / "nothing.db")),
        ("--from", "agno", str(tmp_path / "pipe.db")),
        ("--from", "agentscope", str(tmp_path / "nothing")),
        ("--from", "agno", str(empty), "--users"),
        ("--from", "agno", str(empty), "--name", "x"),
        ("--from", "other", str(empty)),
    ):
        code, out, err = cli.run("import", *words)
        assert (code, out, err.count("\n") <= 2) == (USAGE, "", True), (words, err)


def test_a_row_that_agno_did_not_write_so_is_skipped_alone(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_2")
    strange = {
        "texts": [{"run_id": "r", "messages": ["hi"]}],
        "calls": [{"run_id": "r", "messages": [{"role": "assistant", "tool_calls": ["f"]}]}],
        "late": [{"run_id": "r", "created_at": 10**400}],
        "nan": [{"run_id": "r", "messages": [{"role": "user", "content": float("nan")}]}],
    }
    insert = """
        INSERT INTO agno_sessions (session_id, session_type, session_data, runs, created_at)
        VALUES (?, 'agent', ?, ?, 1)
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for name, runs in strange.items():
            connection.execute(insert, [name, "{}", json.dumps(runs)])
        connection.execute(insert, ["bytes", b'{"session_state": {"a": 1}}', "[]"])
        connection.execute(
            "INSERT INTO agno_sessions (session_id, session_type, session_data, created_at) "
            "VALUES ('latin', 'agent', CAST(x'7b2261223a22e9227d' AS TEXT), 1)"
        )
    code, out, _ = cli.run("import", "--from", "agno", str(file), "--json")
    report = json.loads(out)
    assert code == FAILURE
    assert {each["source"] for each in report["skipped"]} == set(strange)
    assert {"shopping", "poems", "bytes", "latin"} <= {each["name"] for each in report["imported"]}


def test_a_file_that_does_not_end_or_is_too_large_is_skipped_alone(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "zero.json").symlink_to("/dev/zero")
    with (folder / "sparse.json").open("wb") as file:
        file.truncate(6 << 30)
    (folder / "whole.json").write_text('{"agent": {"name": "Friday"}}')
    code, out, _ = cli.run("import", "--from", "agentscope", str(folder), "--json")
    report = json.loads(out)
    assert (code, [each["name"] for each in report["imported"]]) == (FAILURE, ["whole"])
    assert [each["source"] for each in report["skipped"]] == [
        *("folder.json", "pipe.json", "sparse.json", "zero.json"),
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    matrix(
        ("huge TEXT AS (hex(zeroblob(4e8))) VIRTUAL", None),
        ("summary_of_all TEXT AS (hex(zeroblob(4e8))) VIRTUAL", None),
        ("notes TEXT", "x" * (65 << 20)),
    ),
)
def test_a_column_that_agno_has_not_is_not_read(
    cli: commands.DataFolder, tmp_path: Path, column: str, value: str | None
) -> None:
    file = database(tmp_path, "agno_2")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"ALTER TABLE agno_sessions ADD COLUMN {column}")
        if value is not None:
            connection.execute("UPDATE agno_sessions SET notes = ?", [value])
    report = cli.json("import", "--from", "agno", str(file))
    assert {"shopping", "poems"} <= {each["name"] for each in report["imported"]}


@pytest.mark.thorough
def test_a_session_of_agno_that_is_too_large_is_skipped_alone(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_2")
    with closing(sqlite3.connect(file)) as connection, connection:
        large = json.dumps([{"content": "x" * (65 << 20)}])
        connection.execute("UPDATE agno_sessions SET runs = ? WHERE session_id = 'poems'", [large])
    code, out, _ = cli.run("import", "--from", "agno", str(file), "--json")
    report = json.loads(out)
    assert code == FAILURE
    assert len(report["skipped"]) == 1
    assert "shopping" in {each["name"] for each in report["imported"]}


def test_half_a_surrogate_pair_is_replaced_and_nan_is_refused_with_its_name(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    (tmp_path / "half.json").write_text('{"agent": {"text": "tea \\ud83c"}}')
    (tmp_path / "nan.json").write_text('{"agent": {"score": NaN}}')
    _, out, _ = cli.run("import", "--from", "agentscope", str(tmp_path))
    assert "nan.json was skipped: it is not JSON (it has NaN, which JSON lacks)" in out
    assert cli.json("state", "half")["value"]["modules"]["agent"] == {"text": "tea ?"}
