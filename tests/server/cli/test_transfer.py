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
import commands
import pytest
from counting import Counting
from front import JSON, Way, count, opened_session, structured
from house import house as in_process
from mcp import Client

from statehold.server.cli.exit_codes import FAILURE, NOT_FOUND, OK, USAGE


class House(commands.House):
    """Runs the commands on sessions that no process holds, and on those that a server holds."""

    def left(self, **wish: Any) -> str:
        """Make a session that no process holds afterwards."""

        async def run() -> str:
            async with in_process(Counting("quick"), folder=self.data) as found:
                return (await found.create(**wish)).id

        return anyio.run(run)

    def asked(self, way: Way, work: Callable[[Client], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            with anyio.fail_after(30):
                async with way.connect() as client:
                    return await work(client)

        return anyio.run(run)


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> House:
    return House(tmp_path, capsys)


async def state_of(client: Client, session: str) -> Any:
    found = structured(await client.call_tool("state_get", {"session_id": session}))
    return found["value"]


def test_sessions_are_moved_beside_a_server_that_holds_them(house: House) -> None:
    """Each command runs in the process that holds the session, and its caller sees the effect at once."""
    file = house.folder / "work.json"
    with house.serving() as way:

        async def made(client: Client) -> str:
            session = await opened_session(client, name="work", state={"n": 0, "token": "hush"})
            assert await count(client, session) == 1
            return session

        work = house.asked(way, made)
        renamed = house.json("rename", "work", "play", "--metadata", '{"a": [1.0]}')
        assert (renamed["session_id"], renamed["name"], renamed["metadata"]) == (
            *(work, "play"),
            {"a": [1.0]},
        )
        forked = house.json("fork", "play", "--name", "left", "--name", "right")
        assert [child["name"] for child in forked["children"]] == ["left", "right"]
        assert [service["copied"] for service in forked["services"]] == [False]
        for number, name in enumerate(("left", "right"), 1):
            house.json("state", name, "--merge", json.dumps({"n": number}))
        refused = house.run("merge", "play", "left", "right", "--policy", "fail")
        assert (refused[0], "/n" in refused[2]) == (FAILURE, True)
        merged = house.json("merge", "play", "left", "right")
        assert (merged["version"], merged["conflict_count"]) == (1, 1)

        async def seen(client: Client) -> Any:
            return await state_of(client, work)

        assert house.asked(way, seen)["n"] == 2
        told = house.json("export", "play", str(file))
        assert (told["secrets"], stat.S_IMODE(file.stat().st_mode)) == (False, 0o600)
        assert "hush" not in file.read_text()
        kept = file.read_text()
        code, _, said = house.run("export", "play", str(file), "--secrets")
        assert (code, "--force" in said, file.read_text()) == (USAGE, True, kept)
        house.json("export", "play", str(file), "--secrets", "--force")
        document = json.loads(file.read_text())
        assert document["state"]["value"] == {"n": 2, "token": "hush"}
        assert [entry["tool"] for entry in document["journal"] if entry["kind"] == "call"] == [
            "inc"
        ]
        taken = house.run("import", str(file))
        assert (taken[0], "name" in taken[2]) == (FAILURE, True)
        new = house.json("import", str(file), "--name", "again")
        assert (new["status"], new["imported_from"]) == ("paused", work)

        async def used(client: Client) -> JSON:
            assert await count(client, new["session_id"]) == 1
            return await state_of(client, "again")

        assert house.asked(way, used) == {"n": 2, "token": "hush"}
        gone = house.json("delete", "play", "again", "--force")
        assert [session["status"] for session in gone["sessions"]] == ["deleted", "deleted"]
        code, out, _ = house.run("list", "--all", "--json")
        assert (code, {session["name"] for session in json.loads(out)["sessions"]}) == (
            OK,
            {"left", "right"},
        )


def test_sessions_are_moved_when_no_process_holds_them(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands do the same on a data folder without a server; they start nothing and leave nothing behind."""
    work = house.left(name="work", state={"n": 0}, labels={"user_id": "ann"})
    code, text, _ = house.run("export", "work", "--secrets")
    document = json.loads(text)
    assert (code, document["session"]["user_id"]) == (OK, "ann")
    assert house.run("fork", "work", configured=False)[0] == FAILURE
    [child] = house.json("fork", "work", "--name", "left")["children"]
    house.json("state", "left", "--merge", '{"n": 5}')
    assert house.json("merge", "work", "left")["version"] == 1
    assert house.json("state", "work")["value"] == {"n": 5}
    assert house.json("rename", "work", "--unname")["name"] is None
    assert house.json("rename", work, "work")["name"] == "work"
    assert house.run("rename", work, "left")[0] == FAILURE
    assert house.json("show", work)["status"] == "paused"
    house.json("rename", work, "--metadata", '{"order": {"id": 17}}')
    for words, names in (
        (["--user", "ann"], ["left", "work"]),
        (["--user", "ann", "--metadata", '{"order": {"id": 17}}'], ["work"]),
        (["--name", "le", "--since", "2001-01-01"], ["left"]),
        (["--since", "2999-01-01"], []),
        (["--query", "ANN"], ["left", "work"]),
        (["--team", "ann"], []),
    ):
        found = house.json("list", *words)["sessions"]
        assert sorted(session["name"] for session in found) == names, words
    for words in (["--since", "soon"], ["--metadata", "[1]"], ["--metadata", "{"]):
        assert house.run("list", *words)[0] == USAGE
    typed = type("", (), {"buffer": io.BytesIO(text.encode())})
    monkeypatch.setattr(sys, "stdin", typed)
    new = house.json("import", "-", "--name", "again", "--owner", "bob")
    assert house.json("show", new["session_id"])["owner"] == "bob"
    code, out, err = house.run("export", "left", str(house.folder / "none" / "x"))
    assert (code, out) == (USAGE, "")
    assert "none" in err
    broken = house.folder / "broken.json"
    broken.write_text(text[:-9])
    for file in (broken, house.config, house.folder / "missing"):
        assert house.run("import", str(file))[0] in (FAILURE, USAGE)
    document["bindings"][0]["service"] = "other"
    broken.write_text(json.dumps(document))
    assert "--lenient" in house.run("import", str(broken), "--name", "x")[2]
    assert len(house.json("import", str(broken), "--name", "x", "--lenient")["left_out"]) == 1
    for words in (["rename", "work"], ["rename", "work", "x", "--unname"]):
        assert house.run(*words)[0] == USAGE
    assert house.run("delete", "nobody")[0] == NOT_FOUND
    house.json("close", "left")
    gone = house.json("delete", "work", child["session_id"])
    assert [session["session_id"] for session in gone["sessions"]] == [work, child["session_id"]]
    names = [session["name"] for session in house.json("list", "--all")["sessions"]]
    assert sorted(names) == ["again", "x"]
    # A document makes a data folder of its own.
    house.data = house.folder / "other"
    broken.write_text(text)
    house.json("import", str(broken))
    assert house.json("state", "work")["value"] == {"n": 0}
