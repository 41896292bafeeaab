"""`statehold sessions rename|fork|merge|export|import|delete`, beside a server that holds the sessions and beside none."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support import commands
from support.counting import Counting
from support.engine import engine as in_process
from support.gateway_process import JSON, Way, count, opened_session, structured

from statehold.client.sync import connect
from statehold.server.exit_codes import FAILURE, NOT_FOUND, OK, USAGE


class DataFolder(commands.DataFolder):
    """Runs the commands on sessions that no process holds, and on those that a server holds."""

    def left(self, **wish: Any) -> str:
        """Make a session that no process holds afterwards."""

        async def run() -> str:
            async with in_process(Counting("quick"), folder=self.data) as engine:
                return (await engine.create(**wish)).id

        return anyio.run(run)

    def ask(self, way: Way, work: Callable[[Client], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            with anyio.fail_after(30):
                async with way.connect() as client:
                    return await work(client)

        return anyio.run(run)


@pytest.fixture
def folder_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DataFolder:
    return DataFolder(tmp_path, capsys)


async def state_of(client: Client, session: str) -> Any:
    content = structured(await client.call_tool("state_get", {"session_id": session}))
    return content["value"]


@pytest.mark.thorough
def test_sessions_are_moved_beside_a_server_that_holds_them(folder_cli: DataFolder) -> None:
    """Each command runs in the process that holds the session, and its caller sees the effect at once."""
    file = folder_cli.folder / "work.json"
    with folder_cli.serving() as way:

        async def create(client: Client) -> str:
            session = await opened_session(client, name="work", state={"n": 0, "token": "hush"})
            assert await count(client, session) == 1
            return session

        work = folder_cli.ask(way, create)
        renamed = folder_cli.json("rename", "work", "play", "--metadata", '{"a": [1.0]}')
        assert (renamed["session_id"], renamed["name"], renamed["metadata"]) == (
            *(work, "play"),
            {"a": [1.0]},
        )
        forked = folder_cli.json("fork", "play", "--name", "left", "--name", "right")
        assert [child["name"] for child in forked["children"]] == ["left", "right"]
        assert [service["copied"] for service in forked["services"]] == [False]
        for number, name in enumerate(("left", "right"), 1):
            folder_cli.json("state", name, "--merge", json.dumps({"n": number}))
        refused = folder_cli.run("merge", "play", "left", "right", "--policy", "fail")
        assert (refused[0], "/n" in refused[2]) == (FAILURE, True)
        merged = folder_cli.json("merge", "play", "left", "right")
        assert (merged["version"], merged["conflict_count"]) == (1, 1)

        async def read(client: Client) -> Any:
            return await state_of(client, work)

        assert folder_cli.ask(way, read)["n"] == 2
        exported = folder_cli.json("export", "play", str(file))
        assert (exported["secrets"], stat.S_IMODE(file.stat().st_mode)) == (False, 0o600)
        assert "hush" not in file.read_text()
        text = file.read_text()
        code, _, error = folder_cli.run("export", "play", str(file), "--secrets")
        assert (code, "--force" in error, file.read_text()) == (USAGE, True, text)
        folder_cli.json("export", "play", str(file), "--secrets", "--force")
        document = json.loads(file.read_text())
        assert document["state"]["value"] == {"n": 2, "token": "hush"}
        assert [entry["tool"] for entry in document["journal"] if entry["kind"] == "call"] == [
            "inc"
        ]
        imported = folder_cli.run("import", str(file))
        assert (imported[0], "name" in imported[2]) == (USAGE, True)
        new = folder_cli.json("import", str(file), "--name", "again")
        assert (new["status"], new["imported_from"]) == ("paused", work)

        async def used(client: Client) -> JSON:
            assert await count(client, new["session_id"]) == 1
            return await state_of(client, "again")

        assert folder_cli.ask(way, used) == {"n": 2, "token": "hush"}
        gone = folder_cli.json("delete", "play", "again", "--force")
        assert [session["status"] for session in gone["sessions"]] == ["deleted", "deleted"]
        code, out, _ = folder_cli.run("list", "--all", "--json")
        assert (code, {session["name"] for session in json.loads(out)["sessions"]}) == (
            OK,
            {"left", "right"},
        )


def test_all_sessions_of_a_folder_move_in_one_process(
    folder_cli: DataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, states, times and parents come along, each session once, and a document that is none is named."""
    with connect(services={}, data=folder_cli.data) as client:
        client.create("work", state={"n": 0})
        client.create()
    [child] = folder_cli.json("fork", "work", "--name", "left")["children"]
    folder_cli.json("state", "left", "--merge", '{"n": 5}')
    before = {each["name"]: each for each in folder_cli.json("list")["sessions"]}
    backup = tmp_path / "backup"
    written = folder_cli.json("export", "--all", str(backup), "--secrets")
    assert (written["sessions"], stat.S_IMODE(backup.stat().st_mode)) == (3, 0o700)
    assert {stat.S_IMODE(file.stat().st_mode) for file in backup.iterdir()} == {0o600}
    (backup / "other.json").write_text('{"format": "none"}')

    (tmp_path / "new").mkdir()
    new = commands.DataFolder(tmp_path / "new", capsys)
    code, out, _ = new.run("import", str(backup), "--json")
    report = json.loads(out)
    assert (code, len(report["imported"])) == (FAILURE, 3)
    assert [each["source"] for each in report["skipped"]] == ["other.json"]
    after = {each["name"]: each for each in new.json("list")["sessions"]}
    for name in before.keys() | after.keys():
        assert after[name]["created_at"] == before[name]["created_at"]
    assert new.json("merge", "work", "left")["version"] == 1
    assert new.json("state", "work")["value"] == {"n": 5}
    (backup / "other.json").unlink()
    again = new.json("import", str(backup))
    assert (len(again["unchanged"]), again["imported"]) == (3, [])
    assert child["session_id"] not in {each["session_id"] for each in after.values()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["export", "work", "--all", "backup"],
        ["export"],
        ["import", "."],
        ["import", ".", "--name", "x"],
        ["import", ".", "--users"],
    ],
)
def test_words_that_do_not_fit_a_folder_are_refused(
    folder_cli: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    folder_cli.left(name="work")
    assert folder_cli.run(*words)[0] == USAGE


def test_the_default_times_before_0_1_become_those_of_today(
    folder_cli: DataFolder, tmp_path: Path
) -> None:
    folder_cli.left(name="plain")
    file = tmp_path / "plain.json"
    folder_cli.json("export", "plain", str(file))
    document = json.loads(file.read_text())
    times = document["session"]["timeouts"]
    for name, changes, paused in (
        ("old", {"paused": 86_400.0, "lifetime": 604_800.0}, 0),
        ("own", {"paused": 86_400.0, "lifetime": 600_000.0}, 86_400),
        ("long", {"paused": 5.0, "lifetime": 604_800.0}, 5),
    ):
        document["session"]["timeouts"] = {**times, **changes}
        file.write_text(json.dumps(document))
        folder_cli.json("import", str(file), "--name", name)
        imported = json.loads(folder_cli.run("export", name)[1])
        assert imported["session"]["timeouts"]["paused"] == paused


@pytest.mark.thorough
def test_sessions_are_moved_when_no_process_holds_them(
    folder_cli: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands do the same on a data folder without a server: those that change a session start one."""
    work = folder_cli.left(name="work", state={"n": 0}, labels={"user_id": "ann"})
    code, text, _ = folder_cli.run("export", "work", "--secrets")
    document = json.loads(text)
    assert (code, document["session"]["user_id"]) == (OK, "ann")
    assert folder_cli.run("fork", "work", with_config=False)[0] == USAGE
    [child] = folder_cli.json("fork", "work", "--name", "left")["children"]
    folder_cli.json("state", "left", "--merge", '{"n": 5}')
    assert folder_cli.json("merge", "work", "left")["version"] == 1
    assert folder_cli.json("state", "work")["value"] == {"n": 5}
    assert folder_cli.json("rename", "work", "--unname")["name"] is None
    assert folder_cli.json("rename", work, "work")["name"] == "work"
    assert folder_cli.run("rename", work, "left")[0] == USAGE
    folder_cli.json("rename", work, "--metadata", '{"order": {"id": 17}}')
    for words, names in (
        (["--user", "ann"], ["left", "work"]),
        (["--user", "ann", "--metadata", '{"order": {"id": 17}}'], ["work"]),
        (["--name", "le", "--since", "2001-01-01"], ["left"]),
        (["--since", "2999-01-01"], []),
        (["--query", "ANN"], ["left", "work"]),
        (["--team", "ann"], []),
    ):
        sessions = folder_cli.json("list", *words)["sessions"]
        assert sorted(session["name"] for session in sessions) == names, words
    for words in (["--since", "soon"], ["--metadata", "[1]"], ["--metadata", "{"]):
        assert folder_cli.run("list", *words)[0] == USAGE
    typed = type("", (), {"buffer": io.BytesIO(text.encode())})
    monkeypatch.setattr(sys, "stdin", typed)
    new = folder_cli.json("import", "-", "--name", "again", "--owner", "bob")
    assert folder_cli.json("show", new["session_id"])["owner"] == "bob"
    code, out, err = folder_cli.run("export", "left", str(folder_cli.folder / "none" / "x"))
    assert (code, out) == (USAGE, "")
    assert "none" in err
    broken = folder_cli.folder / "broken.json"
    broken.write_text(text[:-9])
    for file in (broken, folder_cli.config, folder_cli.folder / "missing"):
        assert folder_cli.run("import", str(file))[0] == USAGE
    document["bindings"][0]["service"] = "other"
    broken.write_text(json.dumps(document))
    assert "--lenient" in folder_cli.run("import", str(broken), "--name", "x")[2]
    assert len(folder_cli.json("import", str(broken), "--name", "x", "--lenient")["left_out"]) == 1
    for words in (["rename", "work"], ["rename", "work", "x", "--unname"]):
        assert folder_cli.run(*words)[0] == USAGE
    assert folder_cli.run("delete", "nobody")[0] == NOT_FOUND
    folder_cli.json("close", "left")
    gone = folder_cli.json("delete", "work", child["session_id"])
    assert [session["session_id"] for session in gone["sessions"]] == [work, child["session_id"]]
    names = [session["name"] for session in folder_cli.json("list", "--all")["sessions"]]
    assert sorted(names) == ["again", "x"]
    # A document makes a data folder of its own.
    folder_cli.data = folder_cli.folder / "other"
    broken.write_text(text)
    folder_cli.json("import", str(broken))
    assert folder_cli.json("state", "work")["value"] == {"n": 0}
