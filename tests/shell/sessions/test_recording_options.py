"""The options of `statehold sessions test`, beside a server and without one; test_recording.py runs what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support import commands
from support.gateway_process import JSON, Way, opened_session, service, serving

from statehold.server.exit_codes import NOT_FOUND, OK, USAGE

NAME = "quick"


@pytest.fixture
def folder_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> commands.DataFolder:
    return commands.DataFolder(tmp_path, capsys, {NAME: service("quick", prefix="q_")})


async def fill(folder_cli: commands.DataFolder, url: str) -> None:
    """Make a session with five calls; the second and the third are of a run, the last one fails."""
    way = Way("http", "modern", folder_cli.config, folder_cli.data, url=url)
    with anyio.fail_after(30):
        async with way.connect() as client:
            session = await opened_session(client, name="work")
            one: JSON = {"session_id": session}
            run: Any = {"statehold/run_id": "r1"}
            await client.call_tool("q_inc", {**one, "n": 1})
            await client.call_tool("q_inc", {**one, "n": 2}, meta=run)
            await client.call_tool("q_inc", {**one, "n": 3}, meta=run)
            await client.call_tool("q_echo", {**one, "who": "ada"})
            await client.call_tool("q_fail", one)
            await client.call_tool("session_history", one)
            await opened_session(client, name="idle")


def counts(source: str) -> list[int]:
    return [n for n in range(1, 4) if f'await s.call("q_inc", n={n})' in source]


def test_a_part_of_a_session_becomes_a_test(
    folder_cli: commands.DataFolder, tmp_path: Path
) -> None:
    with serving(folder_cli.config, folder_cli.data) as running:
        anyio.run(fill, folder_cli, running.url)
        code, source, err = folder_cli.run("test", "work")
        assert code == OK
    assert (code, source, err) == folder_cli.run("test", "work")
    assert err.startswith("statehold: left out: ")
    assert "fail, since it failed" in err
    compile(source, "test_work.py", "exec")
    assert "async def test_work(statehold_session: Session) -> None:" in source
    assert '@pytest.mark.statehold(services=["quick"])' in source
    assert counts(source) == [1, 2, 3]
    assert 'assert value_at(result, "/count") == 6' in source
    assert "/pid" not in source
    _, of_run, _ = folder_cli.run("test", "work", "--run", "r1")
    assert counts(of_run) == [2, 3]
    seqs = [each["seq"] for each in folder_cli.json("history", "work", "--kind", "call")["entries"]]
    bounds = ("--from", str(seqs[1]), "--to", str(seqs[1]))
    assert counts(folder_cli.run("test", "work", *bounds)[1]) == [2]

    file = tmp_path / "test_work.py"
    document = folder_cli.json("test", "work", "--param", "who=ada", "-o", str(file))
    assert (document["steps"], document["file"], document["required"]) == (4, str(file), [])
    assert [each["tool"] for each in document["left_out"]] == ["fail"]
    assert '@pytest.mark.parametrize("who", ["ada"])' in file.read_text()
    assert 'await s.call("q_echo", who=who)' in file.read_text()

    wrong = {
        ("work", "-o", str(file)): "is there already",
        ("work", "-o", str(tmp_path / "none" / "a.py")): "No such file",
        ("work", "--param", "who=bob"): "no step has the value",
        ("work", "--param", "who"): "NAME=VALUE",
        ("work", "--param", "class=ada"): "NAME=VALUE",
        ("work", "--run", "r2"): "has no steps",
        ("idle",): "has no steps",
    }
    for words, problem in wrong.items():
        code, out, err = folder_cli.run("test", *words)
        assert (code, out) == (USAGE, ""), words
        assert problem in err
    assert folder_cli.run("test", "unknown")[0] == NOT_FOUND
