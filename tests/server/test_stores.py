"""Serving with the sessions in the database of a server, and the settings that say so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from databases import PostgreSQL
from front import STATEHOLD, Way, opened_session, service, serving, structured, toml

from statehold.server.config import Config, ConfigError, StoreSettings
from statehold.server.config_load import load
from statehold.server.stores import store_of, url_of
from statehold.sessions.errors import StoreUnavailable

SECRET = "-".join(["hunter", "2"])


def statehold(data: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STATEHOLD, *arguments, "--data", str(data)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


async def test_sessions_in_postgresql_survive_the_death_of_the_process(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    url = postgresql.fresh().replace("statehold@", "statehold:${SECRET}@")
    counter = {"counter": service("counter")}
    config.write_text(toml({"store": {"url": url}, "services": counter}))
    env, said = {"SECRET": SECRET}, ""

    with serving(config, data, env=env, as_installed=True) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client, name="work", state={"n": 1})
            await client.call_tool("inc", {"session_id": session})
            wanted = {"session_id": session, "values": {"n": 2}}
            assert structured(await client.call_tool("state_update", wanted))["version"] == 1
            said += " ".join(psutil.Process(running.process.pid).cmdline())
        running.process.kill()
        assert running.process.wait(10) == -signal.SIGKILL
        said += running.log
    assert not list(data.glob("statehold.db*"))
    assert data.stat().st_mode & 0o777 == 0o700

    with serving(config, data, env=env, as_installed=True) as running:
        way = Way("http", "legacy", config, data, url=running.url)
        async with way.connect() as client:
            found = structured(await client.call_tool("state_get", {"session_id": "work"}))
            assert (found["value"], found["version"]) == ({"n": 2}, 1)
            listed = statehold(data, "sessions", "list", "--json", "--config", str(config), env=env)
            assert [s["session_id"] for s in json.loads(listed.stdout)["sessions"]] == [session]
            told = statehold(data, "doctor", "--config", str(config), env=env)
            assert "postgresql local/" in told.stdout
        said += running.log + listed.stdout + listed.stderr + told.stdout + told.stderr
    assert SECRET not in said


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ({"url": f"oracle://me:{SECRET}@host/db"}, "store.url: there is no store for 'oracle'"),
        ({"url": f"postgresql://me:{SECRET}@host"}, "store.url: it names no database"),
        ({"url": SECRET}, "store.url: there is no store for this"),
        ({"url_file": "/none"}, "store.url_file: cannot be read"),
        ({"url": ["postgresql", SECRET]}, "store.url: should be a valid string; correct it"),
        ({"url": SECRET, "url_file": "/none"}, "drop one of the two"),
        ({"url": "mysql://me:${NOTHING}@host/db"}, "NOTHING"),
    ],
)
def test_a_wrong_url_is_told_without_what_is_in_it(
    tmp_path: Path, store: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "statehold.toml"
    file.write_text(toml({"store": store}))
    with pytest.raises(ConfigError) as caught:
        store_of(load(config=file, environ={}))
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_url_comes_from_a_variable_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    url = f"postgresql://me:{SECRET}@host/db"
    given = load(environ={"STATEHOLD_STORE__URL": url})
    assert url_of(given) == url
    assert SECRET not in repr(given) + str(given) + given.model_dump_json()
    (tmp_path / "url").write_text(f"{url}\n")
    (tmp_path / "statehold.toml").write_text(toml({"store": {"url_file": "url"}}))
    found = load(config=tmp_path / "statehold.toml", environ={})
    assert url_of(found) == url
    assert SECRET not in store_of(found).place


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [("postgresql", "psycopg", "postgres"), ("mariadb", "pymysql", "mysql")],
)
def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.setitem(sys.modules, f"{driver}.converters", None)
    config = Config(store=StoreSettings.model_validate({"url": f"{scheme}://me@host/db"}))
    with pytest.raises(StoreUnavailable, match=rf"statehold\[{extra}\]"):
        store_of(config)
