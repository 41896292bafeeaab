"""The commands on a sealed store."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import pytest
from support.gateway_process import Way, opened_session, service, serving, toml
from support.holding import Output, Run
from support.lent_logins import call
from support.token_file import write_tokens

from statehold.server.exit_codes import OK, USAGE

KEY = "sealing-key-of-the-tests-0123456789"
TOKEN = "ada-0123456789-abcdefghijkl"
SETTINGS = {"sealing": {"keys": ["${SEALING_KEY}"]}, "services": {"quick": service("quick")}}


def test_a_lost_key_is_one_error_at_the_start(
    statehold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = tmp_path / "statehold.toml", str(tmp_path / "data")
    config.write_text(toml(SETTINGS))
    monkeypatch.setenv("SEALING_KEY", KEY)
    flags = ("--config", str(config), "--data", data)
    assert statehold("principals", "revoke", "ada", "--issuer", "", *flags).code == OK
    monkeypatch.setenv("SEALING_KEY", "another-key-of-32-characters-1234")
    for words in (("principals", "list"), ("serve", "--port", "0")):
        ran = statehold(*words, *flags)
        assert ran.code not in (OK, USAGE)
        assert "sealing.keys" in ran.err
        assert "Traceback" not in ran.err
        assert len(ran.err.splitlines()) <= 2


async def test_a_caller_is_forgotten_once_it_is_revoked(
    statehold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALING_KEY", KEY)
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    tokens = write_tokens(tmp_path / "tokens", f"{TOKEN} ada")
    config.write_text(toml({**SETTINGS, "server": {"tokens": str(tokens)}}))
    flags = ("--config", str(config), "--data", str(data))

    async def run(*words: str) -> Output:
        return await anyio.to_thread.run_sync(lambda: statehold(*words, *flags))

    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect(headers={"authorization": f"Bearer {TOKEN}"}) as client:
            session = await opened_session(client, name="work")
            await call(client, "inc", session)
            folder = data / "work" / session
            folder.mkdir(parents=True)
            assert (await run("principals", "forget", "ada")).code == USAGE
    assert (await run("principals", "revoke", "ada")).code == OK
    ran = await run("principals", "forget", "ada")
    assert (ran.code, ran.err) == (OK, "")
    assert "1 session" in ran.out
    assert not folder.exists()
    assert (await run("sessions", "show", session)).code != OK
