"""Serving with the sessions in the database of a server, and the settings that say so."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from support.databases import DatabaseServer
from support.gateway_process import Way, opened_session, service, serving, structured, toml

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.server.config.model import Config
from statehold.server.config.sections import StoreSettings
from statehold.server.gateway.stores import store_of, url_of
from statehold.server.process.gateway import open_gateway
from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.store.dialect import RemoteDatabase
from statehold.sessions.store.sql import SQLStore
from statehold.shell.doctor.data import check_store
from statehold.shell.main import main
from statehold.shell.parser import CommandLine
from statehold.shell.store_commands import run_backup as backup

SECRET = "-".join(["hunter", "2"])


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def statehold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in this process, and returns its exit code and its output."""

    def run(data: Path, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("SECRET", SECRET)
        capsys.readouterr()
        code = main([*arguments, "--data", str(data)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "named"),
    [("postgresql", "postgresql local/"), ("mariadb", "mysql localhost/")],
)
async def test_sessions_in_a_server_survive_the_death_of_the_process(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    statehold: Command,
    kind: str,
    named: str,
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    server: DatabaseServer = request.getfixturevalue(kind)
    url = server.fresh().replace("statehold@", "statehold:${SECRET}@")
    counter = {"counter": service("quick")}
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

    with serving(config, data, env=env) as running:
        way = Way("http", "legacy", config, data, url=running.url)
        async with way.connect() as client:
            found = structured(await client.call_tool("state_get", {"session_id": "work"}))
            assert (found["value"], found["version"]) == ({"n": 2}, 1)
            code, listed, noise = await anyio.to_thread.run_sync(
                partial(statehold, data, "sessions", "list", "--json", "--config", str(config))
            )
            assert code == 0
            assert [s["session_id"] for s in json.loads(listed)["sessions"]] == [session]
            found = load(config=config, flags={"data": str(data)}, environ=env)
            told = str(await anyio.to_thread.run_sync(lambda: list(check_store(found))))
            assert named in told
        said += running.log + listed + noise + told
    assert SECRET not in said


def test_a_backup_is_made_once_and_is_for_its_user_alone(
    tmp_path: Path, statehold: Command
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    code, _, output = statehold(data, "backup", str(copy))
    assert code == 1
    assert "nothing is stored" in output
    anyio.run(_made, data)
    assert data.stat().st_mode & 0o777 == 0o700
    code, output, _ = statehold(data, "backup", str(copy), "--json")
    assert json.loads(output) == {"file": str(copy), "bytes": copy.stat().st_size}
    assert copy.stat().st_mode & 0o777 == 0o600
    code, _, output = statehold(data, "backup", str(copy))
    assert code == 1
    assert "is there already" in output


async def _made(data: Path) -> None:
    async with SQLStore.sqlite(data):
        pass


@pytest.mark.parametrize(
    ("scheme", "tool"), [("postgresql", "pg_dump"), ("mariadb", "mariadb-dump")]
)
def test_the_backup_of_a_server_is_left_to_its_own_tools(
    tmp_path: Path, scheme: str, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(
        store=StoreSettings.model_validate({"url": f"{scheme}://me:{SECRET}@host/db"}),
    )
    arguments = CommandLine(file=str(tmp_path / "copy"), json=False)
    assert backup(config, arguments) == 1
    output = capsys.readouterr().err
    assert tool in output
    assert SECRET not in output


async def test_a_server_sets_a_damaged_database_aside_and_the_doctor_reports_it(
    tmp_path: Path,
) -> None:
    data, file = tmp_path / "data", tmp_path / "data" / "statehold.db"
    data.mkdir(mode=0o700)
    file.write_bytes(b"broken")
    config = Config(data=data)

    async def looked() -> str:
        return await anyio.to_thread.run_sync(lambda: str(list(check_store(config))))

    assert "is not a database" in await looked()
    assert file.read_bytes() == b"broken"
    async with open_gateway(config, address="test"):
        pass
    assert "was damaged and set aside" in await looked()
    assert [path.read_bytes() for path in data.glob("*.damaged-*[0-9]")] == [b"broken"]


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ({"url": f"oracle://me:{SECRET}@host/db"}, "store.url: there is no store for 'oracle'"),
        ({"url": f"postgresql://me:{SECRET}@host"}, "store.url: it names no database"),
        ({"url": "sqlite:////srv/it/agents.db"}, 'write data = "/srv/it", whose database is'),
        ({"url": "sqlite+aiosqlite:///agents.db"}, 'write data = ".", whose database is'),
        ({"url": "sqlite://"}, "write ephemeral = true"),
        ({"url": SECRET}, "store.url: there is no store for this"),
        ({"url_file": "/none"}, "store.url_file: cannot be read"),
        ({"url": ["postgresql", SECRET]}, "store.url: should be a valid string; correct it"),
        ({"url": SECRET, "url_file": "/none"}, "drop one of the two"),
        ({"url": "mysql://me:${NOTHING}@host/db"}, "NOTHING"),
    ],
)
def test_an_error_about_a_wrong_url_does_not_contain_it(
    tmp_path: Path, store: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "statehold.toml"
    file.write_text(toml({"store": store}))
    with pytest.raises(ConfigError) as error_info:
        store_of(load(config=file, environ={}))
    assert problem in str(error_info.value)
    assert SECRET not in str(error_info.value)


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        ("postgresql+psycopg", "postgresql"),
        ("postgresql+asyncpg", "postgresql"),
        ("mysql+pymysql", "mysql"),
        ("mariadb+aiomysql", "mysql"),
    ],
)
def test_a_url_of_sqlalchemy_may_name_any_driver(scheme: str, kind: str) -> None:
    database = RemoteDatabase(f"{scheme}://me:{SECRET}@host:77/db?charset=utf8mb4")
    assert database.location == f"{kind} host:77/db"


def test_the_url_comes_from_a_variable_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    url = f"postgresql://me:{SECRET}@host/db"
    loaded = load(environ={"STATEHOLD_STORE__URL": url})
    assert url_of(loaded) == url
    assert SECRET not in repr(loaded) + str(loaded) + loaded.model_dump_json()
    (tmp_path / "url").write_text(f"{url}\n")
    (tmp_path / "statehold.toml").write_text(toml({"store": {"url_file": "url"}}))
    config = load(config=tmp_path / "statehold.toml", environ={})
    assert url_of(config) == url
    assert SECRET not in store_of(config).location


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [("postgresql", "psycopg", "postgres"), ("mariadb", "asyncmy", "mysql")],
)
def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.setitem(sys.modules, f"{driver}.converters", None)
    config = Config(store=StoreSettings.model_validate({"url": f"{scheme}://me@host/db"}))
    with pytest.raises(StoreUnavailable, match=rf"statehold\[{extra}\]"):
        store_of(config)
