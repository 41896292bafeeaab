"""`statehold sessions state`, beside a server that holds the session and beside none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import commands
from support.counting import Counting
from support.engine import engine as in_process
from support.gateway_process import JSON, opened_session, structured
from support.selection import matrix

from statehold.server.exit_codes import FAILURE, NOT_FOUND, OK, USAGE

SCHEMA: JSON = {"properties": {"n": {"type": "integer"}}}


class DataFolder(commands.DataFolder):
    """Runs `statehold sessions state` on sessions that no process holds."""

    def run(self, *words: str, with_config: bool = True) -> tuple[int, str, str]:
        return super().run("state", *words, with_config=with_config)

    def value(self, *words: str) -> Any:
        code, out, err = self.run(*words)
        assert code == OK, err
        return json.loads(out)

    def create(self, **wish: Any) -> str:
        """Make a session that no process holds afterwards."""

        async def run() -> str:
            async with in_process(Counting("quick"), folder=self.data) as engine:
                return (await engine.create(**wish)).id

        return anyio.run(run)


@pytest.fixture
def folder_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DataFolder:
    return DataFolder(tmp_path, capsys)


def test_the_state_of_an_unheld_session_is_shown_and_changed(
    folder_cli: DataFolder,
) -> None:
    state = {"cart": {"items": ["tea"]}, "large": 2**80, "whole": 1.0}
    session = folder_cli.create(name="work", state=state, state_schema=SCHEMA)
    assert folder_cli.value("work") == state
    assert folder_cli.value(session, "--path", "/cart/items/0") == "tea"
    shown = folder_cli.value("work", "--path", "/cart", "--json")
    assert shown == {
        "session_id": session,
        "name": "work",
        "found": True,
        "value": {"items": ["tea"]},
        "version": 0,
    }
    code, out, _ = folder_cli.run(
        "work", "--merge", '{"cart": {"paid": true}}', "--if-version", "0"
    )
    assert (code, out) == (OK, f"the state of {session} (work) is at version 1\n")
    assert folder_cli.value("work", "--set", '"milk"', "--path", "/cart/items/-", "--json") == {
        "session_id": session,
        "name": "work",
        "version": 2,
    }
    assert folder_cli.value("work", "--path", "/cart") == {"items": ["tea", "milk"], "paid": True}
    for words, message in (
        (("--merge", "{}", "--if-version", "0"), "version 2, not 0"),
        (("--merge", '{"n": "one"}'), "/n does not fit"),
        (("--set", "5"), "object"),
        (("--path", "/none"), "nothing at /none"),
    ):
        code, out, err = folder_cli.run("work", *words)
        assert (code, out) == (FAILURE, "")
        assert message in err
    shown = folder_cli.value("work", "--json")
    assert (shown["version"], shown["value"]["large"]) == (2, 2**80)
    # It is free again: a server takes it up.
    with folder_cli.serving() as way:

        async def read() -> JSON:
            async with way.connect() as client:
                arguments = {"session_id": "work", "path": "/cart/items"}
                return structured(await client.call_tool("state_get", arguments))

        assert anyio.run(read) == {"found": True, "value": ["tea", "milk"], "version": 2}


@pytest.mark.thorough
def test_the_state_of_a_session_that_a_server_holds_is_changed_there(
    folder_cli: DataFolder,
) -> None:
    text = "x" * 500_000
    with folder_cli.serving() as way:

        async def start() -> None:
            async with way.connect() as client:
                session = await opened_session(client, name="work", state={"n": 1})
                await client.call_tool("inc", {"session_id": session})

        async def read() -> tuple[JSON, JSON]:
            async with way.connect() as client:
                one = {"session_id": "work"}
                content = structured(await client.call_tool("state_get", one))
                return content, structured(await client.call_tool("inc", one))

        anyio.run(start)
        code, _, err = folder_cli.run("work", "--merge", json.dumps({"text": text}))
        assert code == OK, err
        code, _, err = folder_cli.run("work", "--merge", "{}", "--if-version", "0")
        assert code == FAILURE
        assert "version 1, not 0" in err
        content, counted = anyio.run(read)
        assert content == {"found": True, "value": {"n": 1, "text": text}, "version": 1}
        # Its connection is the one it had.
        assert counted["count"] == 2
        assert folder_cli.value("work", "--path", "/n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    matrix(
        (("--set", "{"), "--set: this is not JSON"),
        (("--if-version", "1"), "--if-version goes with"),
        (("--set", "{}", "--merge", "{}"), "exclude each other"),
        (("--merge", '{"n": NaN}'), "--merge: this is not JSON"),
        (("--merge", "{}", "--if-version", "-1"), "from 0 on"),
        quick=2,
    ),
)
def test_a_mistake_is_one_line_and_exit_code_2(
    folder_cli: DataFolder, words: tuple[str, ...], message: str
) -> None:
    folder_cli.data.mkdir(mode=0o700)
    session = folder_cli.create()
    code, out, err = folder_cli.run(session, *words)
    assert (code, out) == (USAGE, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.thorough
def test_a_missing_or_closed_session_is_reported(folder_cli: DataFolder) -> None:
    assert folder_cli.run("nobody")[0] == NOT_FOUND
    with folder_cli.serving() as way:

        async def closed() -> str:
            async with way.connect() as client:
                session = await opened_session(client, state={"n": 1})
                await client.call_tool("session_close", {"session_id": session})
                return session

        session = anyio.run(closed)
    code, _, err = folder_cli.run(session, "--merge", "{}")
    assert code == NOT_FOUND
    assert "closed" in err
    # The old state is readable until the session is purged.
    assert folder_cli.value(session) == {"n": 1}
