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

from statehold.client.integrations.agentscope import JSONSession, SqliteSession, StateModule
from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.shell.main import main

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
    cli.json("state", "poems", "--merge", '{"used": true}')
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("""UPDATE agno_sessions SET metadata = '{"plan": "gold"}'""")
        connection.execute(
            "UPDATE agno_sessions SET session_data = '[' WHERE session_id = 'failed'"
        )
    code, out, _ = cli.run("import", "--from", "agno", str(file))
    assert code == FAILURE
    assert "0 of 3 sessions imported, 3 skipped" in out
    assert "shopping was skipped: it has changed since" in out
    assert "failed was skipped: it is not as agno writes it" in out
    code, out, _ = cli.run("import", "--from", "agno", str(file), "--update")
    assert "0 of 3 sessions imported, 1 imported again, 2 skipped" in out
    assert "poems was skipped: it has changed since" in out
    shopping = cli.json("show", "shopping")
    assert shopping["metadata"]["plan"] == "gold"
    assert shopping["session_id"] not in {each["session_id"] for each in first["imported"]}
    cli.run("close", "poems")
    code, out, _ = cli.run("import", "--from", "agno", str(file), "--update")
    assert "0 of 3 sessions imported, 1 imported before, 2 skipped" in out
    code, _, _ = cli.run("delete", "poems", "--force")
    code, out, _ = cli.run("import", "--from", "agno", str(file))
    assert "1 of 3 sessions imported, 1 imported before, 1 skipped" in out


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
    # Of this one the end of the user is not known.
    shutil.copy(folder / "bob_main.json", folder / "ada_b_s.json")
    assert await run_sync(main, [*words, *flags]) == FAILURE
    assert await run_sync(main, [*words, *flags, "--user", "ada_b"]) == OK
    session, agent = JSONSession(save_dir=folder), Module()
    try:
        for user, name in (("bob", "main"), ("ada_b", "s")):
            agent.name = ""
            await session.load_session_state(session_id=name, user_id=user, agent=agent)
            assert agent.name == "Friday"
        # The name of the other file has no user.
        assert session.client.get("alice").info().namespace == ""
    finally:
        session.close()
    message, _ = agent.memory.content[0]
    assert message["content"] == "I am Alice"


async def test_the_database_of_agentscope_is_moved_with_all_ids_pictures_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "friday.db"
    ids = ["alice", "user/7", "sh_old", "l" * 200, "..", "ü\n"]
    states = {"agent": {**Module().state_dict(), "name": "Friday"}}
    picture = {"agent": {**Module().state_dict(), "name": "x" * (1 << 20)}}
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE TABLE as_session (session_id TEXT PRIMARY KEY, session_data JSON, created_at TIMESTAMP, "
            "updated_at TIMESTAMP)"
        )
        rows = [(each, json.dumps(states)) for each in ids]
        rows += [("picture", json.dumps(picture)), ("torn", "{")]
        connection.executemany(
            "INSERT INTO as_session VALUES (?, ?, '2024-02-29 12:00:00', '2025-01-31 12:00:00')",
            rows,
        )
    words = ["sessions", "import", "--from", "agentscope", str(file), "--data", f"{file}.statehold"]
    monkeypatch.setenv("STATEHOLD_LIMITS__STATE_BYTES", str(2 << 20))
    assert await run_sync(main, words) == FAILURE
    session, agent = SqliteSession(file), Module()
    try:
        for each in ids:
            agent.name = ""
            await session.load_session_state(session_id=each, agent=agent)
            assert agent.name == "Friday", each
        await session.load_session_state(session_id="picture", agent=agent)
        assert agent.state_dict()["name"] == picture["agent"]["name"]
        await session.save_session_state(session_id="picture", agent=agent)
        for info in session.client.list_sessions():
            assert info.metadata["agentscope"]["id"] in [*ids, "picture"]
            assert info.created_at.startswith("2024-02-29T12:00")
    finally:
        session.close()


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
    assert first.endswith("4 of 8 sessions imported, 4 skipped")
    assert [line.split()[0] for line in reasons] == [
        "half.json",
        "large.json",
        "list.json",
        "torn.json",
    ]
    assert "JSON" in reasons[-1]
    assert "limits.state_bytes" in reasons[1]
    modules = cli.json("state", "alice")["value"]["modules"]
    assert modules["board"]["tasks"] == ["greet"]
    state = cli.json("state", "windows")["value"]
    assert state == {"modules": {"agent": {"name": "Saturday"}}}
    code, out, _ = cli.run("import", "--from", "agentscope", str(folder))
    assert "0 of 8 sessions imported, 4 imported before, 4 skipped" in out


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
        ("--from", "agno", "postgresql://ada:hidden@db.test/agno"),
        ("--from", "agentscope", str(tmp_path / "nothing")),
        ("--from", "agno", str(empty), "--users"),
        ("--from", "agno", str(empty), "--name", "x"),
        ("--from", "other", str(empty)),
    ):
        code, out, err = cli.run("import", *words)
        assert (code, out, err.count("\n") <= 2) == (USAGE, "", True), (words, err)
        assert "hidden" not in err
        assert ("nothing" in words[2]) == ("No such file" in err)


def test_a_run_that_agno_did_not_write_so_is_left_out_alone(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_2")
    strange = {
        "texts": [{"run_id": "r", "messages": ["hi"]}],
        "calls": [{"run_id": "r", "messages": [{"role": "assistant", "tool_calls": ["f"]}]}],
        "late": [{"run_id": "r", "created_at": 10**400}],
        "nan": [{"run_id": "r", "metrics": {"seconds": float("nan")}}],
        "number": [7],
    }
    whole = {"run_id": "whole", "messages": [{"role": "user", "content": "hi"}]}
    insert = """
        INSERT INTO agno_sessions (session_id, session_type, session_data, runs, created_at)
        VALUES (?, 'agent', ?, ?, 1)
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for name, runs in strange.items():
            connection.execute(insert, [name, "{}", json.dumps([*runs, whole])])
        connection.execute(insert, ["torn", "{}", "[{"])
        connection.execute(insert, ["broken", "{", "[]"])
        connection.execute(insert, ["bytes", b'{"session_state": {"a": 1}}', "[]"])
        connection.execute(
            "INSERT INTO agno_sessions (session_id, session_type, session_data, created_at) "
            "VALUES ('latin', 'agent', CAST(x'7b2261223a22e9227d' AS TEXT), 1)"
        )
    code, out, _ = cli.run("import", "--from", "agno", str(file), "--json")
    report = json.loads(out)
    assert code == FAILURE
    assert {each["source"] for each in report["skipped"]} == {"broken"}
    imported = {each["name"]: each["left_out"] for each in report["imported"]}
    assert {"shopping", "poems", "bytes", "latin"} <= imported.keys()
    for name in (*strange, "torn"):
        assert imported[name] == ["runs that are not as agno writes them (1)"], name
    assert list(entries(cli, "texts")) == [("user", "hi")]


def test_all_keys_of_the_session_data_of_agno_arrive_or_are_named(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_3")
    own = {"user_preferences": {"tone": "dry"}, "is_new": False, "order_id": 0}
    data = {**own, "session_metrics": {"tokens": 5}, "session_state": {"a": 1}}
    taken = {**own, "session_state": {"session_data": 1}}
    with closing(sqlite3.connect(file)) as connection, connection:
        for name, values in (("shopping", data), ("poems", taken)):
            connection.execute(
                "UPDATE agno_sessions SET session_data = ?, created_at = 1700000000, updated_at = 1700000500, "
                "user_id = ?, agent_data = ? WHERE session_id = ?",
                [json.dumps(values), "u" * 200, json.dumps({"large": "x" * 17_000}), name],
            )
    report = cli.json("import", "--from", "agno", str(file))
    left_out = {each["name"]: each["left_out"] for each in report["imported"]}
    assert cli.json("state", "shopping")["value"] == {"a": 1, "session_data": own}
    assert cli.json("state", "poems")["value"] == {"session_data": 1}
    assert f"{', '.join(own)} of session_data (1)" in left_out["poems"]
    assert left_out["shopping"] == ["agent_data of its metadata (17012 bytes)"]
    shopping = cli.json("show", "shopping")
    assert shopping["metadata"]["agno"]["session_metrics"] == {"tokens": 5}
    assert shopping["metadata"]["agno"]["user_id"] == "u" * 200
    assert (shopping["created_at"][:10], shopping["used_at"][:10]) == ("2023-11-14", "2023-11-14")
    run = cli.json("history", "shopping", "--kind", "run")["entries"][0]
    assert run["metadata"]["metrics"]["duration"] > 0
    assert run["metadata"]["metadata"] == {"plan": "basic"}


def test_fields_of_runs_and_messages_of_agno_arrive_or_are_named(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_2")
    user = {"role": "user", "content": "hi", "id": "m1", "metrics": {"tokens": 1}}
    answer = {"role": "assistant", "content": "hello", "citations": {"raw": "x"}, "name": "Ada"}
    said = {"messages": [user, answer], "input": {"input_content": "hi"}}
    runs = [
        {**said, "run_id": "same", "content": "hello"},
        {**said, "run_id": "other", "content": {"text": "rewritten"}, "model": "m"},
        {**said, "run_id": "large", "steps": ["x" * 20_000], "model": "m"},
    ]
    with closing(sqlite3.connect(file)) as connection, connection:
        update = "UPDATE agno_sessions SET runs = ? WHERE session_id = 'shopping'"
        connection.execute(update, [json.dumps(runs)])
    report = cli.json("import", "--from", "agno", str(file))
    left_out = {each["name"]: each["left_out"] for each in report["imported"]}["shopping"]
    assert left_out == [
        "citations of messages (3)",
        "name of messages (3)",
        "steps of a run, 20004 bytes (1)",
    ]
    entries = cli.json("history", "shopping", "--kind", "run")["entries"]
    fields = {entry["run_id"]: entry.get("metadata") for entry in entries}
    assert fields["same"] is None
    assert fields["other"] == {"content": {"text": "rewritten"}, "model": "m"}
    assert fields["large"] == {"model": "m"}


def test_calls_of_agno_without_ids_or_messages_come_with_their_results(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    def call(number: int, **fields: object) -> dict[str, object]:
        return {**fields, "function": {"name": "f", "arguments": json.dumps({"n": number})}}

    def asked(*calls: dict[str, object]) -> dict[str, object]:
        return {"role": "assistant", "tool_calls": list(calls)}

    ollama = [asked(call(1), call(2)), *({"role": "tool", "content": each} for each in "ab")]
    combined = [{"tool_name": "f", "content": "c"}, {"tool_call_id": "x", "content": "d"}]
    gemini = [
        asked(call(3, id="w"), call(4, id="x", thought_signature="s")),
        {"role": "tool", "content": ["c", "d"], "tool_calls": combined},
    ]
    tool = {"tool_call_id": "y", "tool_name": "f", "tool_args": {"n": 5}, "result": "e"}
    bare = {"input": {"input_content": "hi", "audios": [{"id": "z"}]}, "content": {"is": "done"}}
    runs = [
        {"run_id": "ollama", "messages": ollama, "forked_from_message_index": 0},
        {"run_id": "gemini", "messages": gemini, "status": "REGENERATED"},
        {**bare, "run_id": "bare", "tools": [{**tool, "approval_id": "q"}], "content_type": "Dish"},
        {"run_id": "team", "member_responses": [{"run_id": "member"}], "status": "COMPLETED"},
    ]
    file = database(tmp_path, "agno_2")
    with closing(sqlite3.connect(file)) as connection, connection:
        update = "UPDATE agno_sessions SET runs = ? WHERE session_id = 'shopping'"
        connection.execute(update, [json.dumps(runs)])
    report = cli.json("import", "--from", "agno", str(file))
    assert {each["name"]: each["left_out"] for each in report["imported"]}["shopping"] == [
        "thought_signature of calls (1)",
        "approval_id of tools (1)",
        "media (1)",
        "member_responses of runs (1)",
    ]
    calls = [("f", {"n": n}, "ok", [text]) for n, text in enumerate("abcde", 1)]
    said = ("user", "hi"), ("assistant", '{"is": "done"}')
    assert list(entries(cli, "shopping")) == [*calls[:4], said[0], calls[4], said[1]]
    listed = cli.json("history", "shopping", "--kind", "run")["entries"]
    assert {each["run_id"]: each.get("metadata") for each in listed} == {
        "ollama": {"forked_from_message_index": 0},
        "gemini": {"status": "REGENERATED"},
        "bare": {"content_type": "Dish"},
        "team": None,
    }


def test_a_database_that_agno_3_migrated_has_each_run_once_and_names_rows_of_other_tables(
    cli: commands.DataFolder, tmp_path: Path
) -> None:
    file = database(tmp_path, "agno_3")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE agno_sessions ADD COLUMN runs JSON")
        connection.execute(
            "UPDATE agno_sessions SET runs = (SELECT json_group_array(json(run_data)) FROM agno_runs "
            "WHERE agno_runs.session_id = agno_sessions.session_id)"
        )
        old = json.dumps([{"run_id": "old", "messages": [{"role": "user", "content": "first"}]}])
        connection.execute(
            "UPDATE agno_sessions SET runs = json_insert(runs, '$[#]', json_extract(?, '$[0]')) "
            "WHERE session_id = 'shopping'",
            [old],
        )
        connection.execute("CREATE TABLE agno_compactions (compaction_id, session_id)")
        connection.execute("INSERT INTO agno_compactions VALUES (1, 'shopping')")
        query = "SELECT run_id FROM agno_runs WHERE session_id = 'shopping' ORDER BY run_index"
        ids = [row[0] for row in connection.execute(query)]
    report = cli.json("import", "--from", "agno", str(file))
    left_out = {each["name"]: each["left_out"] for each in report["imported"]}
    assert left_out["shopping"][-1] == "rows of agno_compactions (1)"
    assert not any("agno_compactions" in part for part in left_out["poems"])
    listed = cli.json("history", "shopping", "--kind", "run")["entries"]
    assert [each["run_id"] for each in listed] == ["old", *ids]


def test_two_folders_may_have_a_file_of_one_name(
    cli: commands.DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for app in ("one", "two"):
        (tmp_path / app).mkdir()
        (tmp_path / app / "alice.json").write_text(json.dumps({"agent": {"name": app}}))
    cli.json("import", "--from", "agentscope", str(tmp_path / "one"))
    _, out, _ = cli.run("import", "--from", "agentscope", str(tmp_path / "two"), "--json")
    assert "name" in json.loads(out)["skipped"][0]["reason"]
    monkeypatch.setenv("STATEHOLD_NAMESPACE", "two")
    report = cli.json("import", "--from", "agentscope", str(tmp_path / "two"))
    assert report["imported"][0]["namespace"] == "two"


def test_an_import_says_at_its_start_that_the_sessions_do_not_fit(
    cli: commands.DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEHOLD_LIMITS__SESSIONS_PER_PRINCIPAL", "2")
    file = database(tmp_path, "agno_3")
    code, out, err = cli.run("import", "--from", "agno", str(file))
    assert (code, out) == (FAILURE, "")
    assert "limits.sessions_per_principal" in err
    monkeypatch.setenv("STATEHOLD_LIMITS__SESSIONS_PER_PRINCIPAL", "3")
    assert len(cli.json("import", "--from", "agno", str(file))["imported"]) == 3
    assert len(cli.json("import", "--from", "agno", str(file))["unchanged"]) == 3


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
    assert "half.json: without halves of surrogate pairs" in out
    assert cli.json("state", "half")["value"]["modules"]["agent"] == {"text": "tea ?"}
