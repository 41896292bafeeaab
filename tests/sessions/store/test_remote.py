"""Store tests for databases on a server: it goes away, comes back, and is used by others at the same moment."""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Generator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.util import await_only
from store_making import NODE, OTHER, Sessions, node_record, version_of
from support.databases import DatabaseServer, MariaDB
from support.process_exit import join_threads

from statehold.sessions.errors import SessionLimit, StoreUnavailable
from statehold.sessions.records import HistoryFilter, StateRecord
from statehold.sessions.store import Write, connection, sql
from statehold.sessions.store import upgrade as upgrade_module
from statehold.sessions.store.dialect import RemoteDatabase, mysql
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.store.upgrade import FIRST

pytestmark = pytest.mark.thorough

KINDS = ("postgresql", "mariadb")


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Generator[DatabaseServer]:
    database: DatabaseServer = request.getfixturevalue(request.param)
    # Creating tables without a store needs this module, which registers the indexes.
    import_module(f"statehold.sessions.store.dialect.{database.driver.partition('+')[0]}")
    database.start()
    yield database
    database.start()  # whatever became of it


@cache
def _secret() -> str:
    return "-".join(["hunter", "2"])


def _store(url: str, busy_seconds: float = 5.0) -> SQLStore:
    return SQLStore.remote(url, busy_seconds=busy_seconds)


@pytest.fixture(autouse=True)
def _collected() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    gc.collect()


def _state(version: int) -> Write:
    carried = StateRecord(session_id="sh_a", version=version, value={"n": version})
    return Write("sh_a", NODE, 1, state=carried)


async def test_connections_that_were_closed_while_idle_are_opened_again(
    server: DatabaseServer,
) -> None:
    async with _store(server.emptied()) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        for version in (1, 2):
            server.disconnect()
            await store.write(_state(version))
            assert await version_of(store) == version


async def test_a_dead_server_is_reported_and_no_acknowledged_write_is_lost(
    server: DatabaseServer,
) -> None:
    async with _store(server.emptied()) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        acknowledged, enough = 0, anyio.Event()

        async def write() -> None:
            nonlocal acknowledged
            with suppress(StoreUnavailable):
                while True:
                    await store.write(_state(acknowledged + 1))
                    acknowledged += 1
                    if acknowledged == 20:
                        enough.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            with anyio.fail_after(20):
                await enough.wait()
            server.kill()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.get("sh_a")
        with pytest.raises(StoreUnavailable):
            await store.write(_state(acknowledged + 5))
        server.start()
        # The last write may be stored without an acknowledgement.
        assert await version_of(store) in (acknowledged, acknowledged + 1)
        await store.write(_state(acknowledged + 10))
        assert await version_of(store) == acknowledged + 10


async def test_closing_does_not_wait_for_ever_for_a_server_that_does_not_answer(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(sql, "CLOSE_SECONDS", 0.2)
    sleeping = (
        "SELECT pg_sleep(50)" if server.driver.startswith("postgresql") else "SELECT SLEEP(50)"
    )

    requested = threading.Event()

    def wait(connection: Connection) -> None:
        requested.set()
        connection.exec_driver_sql(sleeping)

    async def ask(store: SQLStore) -> None:
        with suppress(StoreUnavailable):
            await store._writer.submit(wait)  # pyright: ignore[reportPrivateUsage]

    threads = set(threading.enumerate())
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, _store(server.emptied()) as store:
            await store.join(node_record(NODE))
            tasks.start_soon(ask, store)
            assert await anyio.to_thread.run_sync(requested.wait, 10)
    join_threads(threads)
    server.disconnect()


async def test_transactions_that_get_in_each_others_way_are_run_again(
    server: DatabaseServer,
) -> None:
    url = server.emptied()
    async with _store(url) as one, _store(url) as two:
        await one.join(node_record(NODE))
        for name in ("sh_a", "sh_b"):
            await Sessions(one).make(name)
        first_locks = [anyio.Event(), anyio.Event()]
        runs: list[int] = []

        def crossed(me: int, mine: str, theirs: str) -> Any:
            def work(connection: Connection) -> None:
                runs.append(me)
                touch = text("UPDATE session SET used_at = used_at + 1 WHERE id = :id")
                connection.execute(touch, {"id": mine})
                if len(runs) <= 2:
                    first_locks[me].set()
                    await_only(first_locks[1 - me].wait())
                connection.execute(touch, {"id": theirs})

            return work

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one._writer.submit, crossed(0, "sh_a", "sh_b"))  # pyright: ignore[reportPrivateUsage]
                tasks.start_soon(two._writer.submit, crossed(1, "sh_b", "sh_a"))  # pyright: ignore[reportPrivateUsage]
        assert len(runs) > 2
        for name in ("sh_a", "sh_b"):
            record = await one.get(name)
            assert record is not None
            assert record.used_at == 3.0


async def test_a_limit_holds_for_two_processes_that_create_at_once(server: DatabaseServer) -> None:
    url = server.emptied()
    created, refused = 0, 0
    async with _store(url) as one, _store(url) as two:
        await one.join(node_record(NODE))

        async def make(store: SQLStore, number: int) -> None:
            nonlocal created, refused
            try:
                await Sessions(store).make(f"sh_{number}", per_owner=10)
                created += 1
            except SessionLimit:
                refused += 1

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(make, (one, two)[number % 2], number)
        assert (created, refused) == (10, 50)
        assert await two.counts() == {"idle": 10}


async def test_sessions_of_a_dead_node_are_adopted_once(server: DatabaseServer) -> None:
    url = server.emptied()
    adopted: list[str] = []
    async with _store(url) as one, _store(url) as two:
        for node in (NODE, OTHER):
            await one.join(node_record(node))
        for number in range(40):
            await Sessions(one).make(f"sh_{number:02}", node=OTHER)

        async def adopt(store: SQLStore) -> None:
            adopted.extend(await store.adopt([OTHER], 9.0))

        async with anyio.create_task_group() as tasks:
            for store in (one, two, one, two):
                tasks.start_soon(adopt, store)
        assert sorted(adopted) == [f"sh_{number:02}" for number in range(40)]
        for number in range(40):
            assert len(await two.history(f"sh_{number:02}", HistoryFilter())) == 1


async def test_many_processes_may_open_a_new_database_at_once(server: DatabaseServer) -> None:
    url = server.fresh()
    checked: list[list[str]] = []

    async def one() -> None:
        async with _store(url) as store:
            checked.append(await store.check())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    assert checked == [[]] * 4


async def test_a_database_is_made_for_all_once_its_lock_is_free(mariadb: MariaDB) -> None:
    # PostgreSQL's lock ends with the transaction.
    mariadb.start()
    url = mariadb.fresh()
    database = RemoteDatabase(url)

    def make(connection: Connection) -> None:
        with database.upgrading(connection):
            upgrade_module.upgrade(connection, None)

    async with database.engine(1.0).connect() as connection, connection.begin():
        await connection.run_sync(make)
        async with _store(url, 1.0) as store:
            assert await store.check() == []


async def test_a_lock_that_stays_held_is_an_error(
    mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.start()
    url = mariadb.fresh()
    database = RemoteDatabase(url)
    monkeypatch.setattr(mysql, "_UPGRADE_SECONDS", 0)
    refused = pytest.raises(StoreUnavailable, match="made or upgraded by another program")
    with mariadb.connection(url) as connection, database.upgrading(connection), refused:
        async with _store(url):
            pass


class _Stop(Exception):
    pass


@pytest.mark.parametrize("statements", [2, 6, 14])
async def test_a_creation_that_broke_off_is_gone_on_with(
    server: DatabaseServer, statements: int
) -> None:
    url, whole = server.fresh(), server.emptied()
    with server.connection(url) as connection:
        number = count(1)

        def stop(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.split()[0] in ("CREATE", "ALTER") and next(number) == statements:
                raise _Stop

        event.listen(connection, "before_cursor_execute", stop)
        with pytest.raises(_Stop):
            upgrade_module.upgrade(connection, None)
    async with _store(url) as store, _store(whole):
        assert await store.check() == []
    assert _shape(server, url) == _shape(server, whole)


async def test_an_upgrade_that_broke_off_is_gone_on_with(server: DatabaseServer) -> None:
    url, whole = server.fresh(), server.emptied()
    async with _store(url), _store(whole):
        pass
    with server.connection(url) as connection:
        # All is there but the mark of completion, and one column.
        connection.execute(text("ALTER TABLE receipt DROP COLUMN upstream"))
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{FIRST}'"))
    async with _store(url) as store:
        assert await store.check() == []
    assert _shape(server, url) == _shape(server, whole)


def _shape(server: DatabaseServer, url: str) -> dict[str, Any]:
    with server.connection(url) as connection:
        looked = inspect(connection)
        return {
            name: (
                sorted(
                    (item["name"], str(item["type"]), item["nullable"], item["default"])
                    for item in looked.get_columns(name)
                ),
                sorted(
                    (
                        str(item["name"]),
                        item["column_names"],
                        item["unique"],
                        str(item.get("dialect_options", {}).get("postgresql_where")),
                    )
                    for item in looked.get_indexes(name)
                ),
                looked.get_pk_constraint(name)["constrained_columns"],
            )
            for name in looked.get_table_names()
        }


async def test_an_error_about_an_unusable_database_hides_its_password(
    server: DatabaseServer, tmp_path: Path
) -> None:
    places = {
        "does not exist": server.url("nothing"),
        "cannot be reached": server.url("x").replace(str(server.folder), str(tmp_path)),
    }
    for problem, url in places.items():
        url = url.replace("statehold@", f"statehold:{_secret()}@")
        url = url.replace("root@", f"root:{_secret()}@") if "does not" not in problem else url
        with pytest.raises(StoreUnavailable, match=problem) as caught:
            async with _store(url):
                pass
        assert _secret() not in "".join(traceback.format_exception(caught.value))


async def test_written_values_are_in_no_error_of_a_server(
    server: DatabaseServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.emptied()
    async with _store(url, 1.0) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a", name="one")
        await Sessions(store).make("sh_b", name=_secret())
        with server.connection(url) as connection:
            transaction = connection.execution_options(isolation_level="READ COMMITTED").begin()
            connection.execute(text("SELECT id FROM session FOR UPDATE")).all()
            with pytest.raises(StoreUnavailable, match="is locked") as caught:
                await store.write(Write("sh_a", NODE, 1, session={"metadata": {"key": _secret()}}))
            transaction.rollback()
        message = "".join(traceback.format_exception(caught.value))
        with pytest.raises(Exception, match="named") as refused:
            await store.write(Write("sh_a", NODE, 1, session={"name": _secret()}))
        assert refused.value.__cause__ is None
        await store.write(_state(1))
    assert _secret() not in message + caplog.text
