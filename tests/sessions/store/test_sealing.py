"""A sealed store: none of the texts of callers is in it, and all are read as they were, with the right key alone."""

from __future__ import annotations

import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import func, select
from store_making import NODE, Sessions, entry, node_record
from support.databases import DatabaseServer, program_path
from support.lent_logins import SecretFinder, keyring_of
from support.selection import matrix

from statehold.sessions.errors import InvalidArgument, NameTaken, StoreUnavailable
from statehold.sessions.journal.entries import CallEntry, excerpt
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.records import (
    BindingRecord,
    ControlLease,
    HistoryFilter,
    JournalKind,
    ReceiptRecord,
    SessionDriver,
    SessionFilter,
    SessionOrder,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
)
from statehold.sessions.services import ToolResult
from statehold.sessions.store import Write, schema
from statehold.sessions.store.base import OK, ApprovalRecord, LoginRecord
from statehold.sessions.store.dialect import FILE_NAME, RemoteDatabase
from statehold.sessions.store.events.records import Subscription
from statehold.sessions.store.file.file_backup import back_up
from statehold.sessions.store.sealing.encryption import DecryptionFailed, Encryption
from statehold.sessions.store.sealing.keyring import Keyring
from statehold.sessions.store.sql import SQLStore

ADA, BEN, EVE = ":ada", ":ben", ":eve"
KEY, NEW_KEY, OTHER_KEY = "k" * 32, "n" * 32, "o" * 32
CANARIES = 1000


@dataclass
class SealedPlace:
    """A database, and the bytes in which nothing of a caller may be found."""

    open: Callable[..., SQLStore]
    folder: Path
    dump: Callable[[], None]
    """Writes what the database has into a file of the folder."""
    used: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def store(self, *keys: str) -> AsyncGenerator[SQLStore]:
        """A store that is sealed with the first of these keys; not sealed without."""
        async with self.open(keyring=keyring_of(*keys) if keys else None) as store:
            yield store

    def canary(self, channel: str) -> str:
        self.used.append(f"{channel}-{secrets.token_hex(8)}")
        return self.used[-1]

    def found(self) -> dict[str, set[str]]:
        self.dump()
        assert any(self.folder.iterdir())
        return SecretFinder(self.used).find_in_files(self.folder)


@pytest.fixture(params=matrix("file", "postgresql"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SealedPlace:
    folder = tmp_path / "data"
    folder.mkdir()
    if request.param == "file":
        copies = count()

        def copy() -> None:
            back_up(folder, folder / f"copy-{next(copies)}.db")

        return SealedPlace(partial(SQLStore.sqlite, folder), folder, copy)
    server: DatabaseServer = request.getfixturevalue(request.param)
    url = server.fresh()

    def pg_dump() -> None:
        file = folder / "dump.sql"
        file.unlink(missing_ok=True)
        subprocess.run([program_path("pg_dump"), f"--file={file}", url], check=True, timeout=60)

    return SealedPlace(partial(SQLStore, RemoteDatabase(url)), folder, pg_dump)


def receipt(operation: str, canary: Callable[[str], str], **values: Any) -> ReceiptRecord:
    texts = {"result": {"x": canary("result")}, "error": {"message": canary("error")}}
    times = {"seq": 0, "epoch": 1, "started_at": 1.0, "status": "ok", "digest": "d"}
    values = {**times, **texts, "upstream": canary("upstream"), **values}
    return ReceiptRecord(session_id="sh_a", operation_id=operation, **values)


async def fill(store: SQLStore, canary: Callable[[str], str], number: int = 1) -> None:
    """Write texts of a caller in every way in which the store gets them."""
    seq = number * 10
    this: dict[str, Any] = {"session_id": "sh_a"}
    control = ControlLease(driver=SessionDriver.REQUESTED, reason=canary("reason"))
    journal = [
        entry("sh_a", seq, request={"x": canary("argument")}, result={"x": canary("result")}),
        entry("sh_a", seq + 1, error=canary("error"), facts={"x": canary("fact")}),
        entry("sh_a", seq + 2, kind=JournalKind.MESSAGE, request={"content": canary("message")}),
    ]
    state: dict[str, Any] = {
        "value": {"x": canary("state")},
        "json_schema": {"title": canary("schema")},
    }
    snapshot: dict[str, Any] = {"service": "shop", "seq": number, "taken_at": 1.0, "epoch": 1}
    tokens: dict[str, Any] = {"last_error": canary("error"), "resume_token": canary("token")}
    await store.write(
        Write(
            "sh_a",
            NODE,
            1,
            session={
                "name": canary("name"),
                "metadata": {"x": canary("metadata")},
                "reason": canary("reason"),
                "control": control,
                **{label: canary("label") for label in ("user_id", "agent_id")},
            },
            bindings=[BindingRecord(**this, service="shop", **tokens)],
            state=StateRecord(**this, version=number, **state),
            snapshots=[SnapshotRecord(**this, **snapshot, data=canary("cookie").encode())],
            journal=journal,
            ended_entries=[entry("sh_a", seq, result={"x": canary("result")})],
            receipts=[receipt(f"op{number}", canary)],
            summary=SummaryRecord(
                **this,
                text=canary("summary"),
                topics=[canary("topic")],
                updated_at=1.0,
                through_seq=seq,
            ),
        )
    )
    result = ToolResult({"content": [{"type": "text", "text": canary("result")}]})
    call: dict[str, Any] = {
        "service": "shop",
        "arguments": {"x": canary("argument")},
        "outcome": excerpt(result),
    }
    times: dict[str, Any] = {
        "started_at": 1.0,
        "ended_at": 1.0,
        "generation": 1,
        "operation_id": None,
    }
    fields: dict[str, Any] = {
        "tool": "t",
        "run": None,
        "limit": 4096,
        "redactor": Redactor(),
        **call,
        **times,
    }
    store.append_call(CallEntry("sh_a", NODE, 1, seq + 3, **fields), ADA)
    store.append(entry("sh_a", seq + 4, request=[canary("argument")]), NODE, ADA)
    assert await store.start_receipt(receipt(f"own{number}", canary, status="started")) is None
    await store.end_receipt(receipt(f"own{number}", canary))
    await store.write_audit(f'{{"arguments":"{canary("audit")}"}}')
    subscription = Subscription(
        f"sub{number}",
        *(ADA, "sh_a", "spoken", f"https://hook.test/{canary('url')}", "hook.test"),
        *(canary("secret"), 1.0, 1e10),
        source=canary("source"),
    )
    assert await store.put_subscription(subscription, most=CANARIES)
    document = {"eventId": f"e{number}", "data": canary("event")}
    assert await store.add_polled(subscription, canary("source"), [document], 1.0)
    value = await store.logins.seal(ADA, f"l{number}", canary("login"))
    await store.logins.put(LoginRecord(ADA, f"l{number}", "key", "", "", OK, 1.0, value))
    if number == 1:
        # A session has twenty at most.
        wanted = ("apr_1", ADA, "sh_a", "shop", "t", "d", "s", canary("argument"), "pending")
        await store.access.request_approval(ApprovalRecord(*wanted, 1.0, 1e9))
    await store.flush()


async def read_all(store: SQLStore) -> str:
    """Return what the store answers about the session, as one text."""
    record = await store.get("sh_a")
    snapshot = await store.snapshot("sh_a", "shop")
    logins = [await store.logins.open(each) for each in await store.logins.page(ADA)]
    hosts = await store.claim_deliveries("hook.test", 1e9, 1e9 + 1, 1000)
    return repr(
        (
            *(record, await store.bindings("sh_a"), await store.state("sh_a"), snapshot),
            *(await store.history("sh_a", HistoryFilter(limit=1000)), await store.summary("sh_a")),
            *(await store.all_receipts("sh_a"), await store.audit_page(0, 1000), logins, hosts),
            [(each.subscription.url, each.subscription.secret) for each in hosts],
            [each.subscription.source for each in hosts],
            [each.resume_token for each in await store.bindings("sh_a")],
            await store.access.approval("apr_1"),
        )
    )


async def make(store: SQLStore, canary: Callable[[str], str] = str, **values: Any) -> None:
    await store.join(node_record(NODE))
    state, metadata = {"x": canary("state")}, {"x": canary("metadata")}
    texts: dict[str, Any] = {"owner": ADA, "name": canary("name"), "team_id": canary("label")}
    texts |= {"state": state, "metadata": metadata}
    await Sessions(store).make("sh_a", "shop", **texts | values)


@pytest.mark.parametrize("canaries", matrix(1, CANARIES))
async def test_no_text_of_a_caller_is_in_the_database_its_log_or_a_copy(
    place: SealedPlace, canaries: int
) -> None:
    number = former = 0
    async with place.store(KEY) as store:
        await make(store, place.canary)
        while not number or len(place.used) < canaries:
            number += 1
            former = len(place.used)
            await fill(store, place.canary, number)
        assert place.found() == {}
        history = await store.history("sh_a", HistoryFilter(limit=1000))
        assert len(history) == 5 * number
    assert place.found() == {}
    async with place.store(KEY) as store:
        read = await read_all(store)
    gone = [each for each in place.used[former:] if each not in read]
    # The entry that ended, the receipts that started and ended, and a source.
    assert [each.partition("-")[0] for each in gone] == [
        *("argument", "result"),
        *("result", "error", "upstream", "source"),
    ]


async def test_sealed_sessions_are_found_by_name_label_and_text_but_not_sorted_by_name(
    place: SealedPlace,
) -> None:
    async with place.store(KEY) as store:
        values: dict[str, Any] = {"name": "Grüße", "team_id": "t" * 128, "metadata": {"order": 7}}
        await make(store, **values)
        sessions = Sessions(store)
        await sessions.make("sh_b", owner=BEN, name="Grüße", metadata={"order": 8})
        found = await store.find(ADA, "", "Grüße")
        assert found is not None
        assert (found.id, found.name, found.team_id) == ("sh_a", "Grüße", "t" * 128)
        with pytest.raises(NameTaken):
            await sessions.make("sh_c", owner=ADA, name="Grüße")
        await sessions.make("sh_d", owner=ADA, name="other")
        with pytest.raises(NameTaken):
            await store.write(Write("sh_d", NODE, 1, session={"name": "Grüße"}))
        control = ControlLease(driver=SessionDriver.REQUESTED, reason="look")
        await store.write(Write("sh_a", NODE, 1, session={"control": control}))
        filters: list[dict[str, Any]] = [
            {"name_prefix": "Gr"},
            {"labels": {"team_id": "t" * 128}},
            {"metadata": {"order": 7}},
            {"query": "grüß"},
            {"driver": SessionDriver.REQUESTED},
        ]
        for wanted in filters:
            page, cursor = await store.list_sessions(SessionFilter(owner=ADA, **wanted))
            assert ([each.id for each in page], cursor) == (["sh_a"], None), wanted
        everyone, _ = await store.list_sessions(SessionFilter(name_prefix="Gr"))
        assert {each.id for each in everyone} == {"sh_a", "sh_b"}
        with pytest.raises(InvalidArgument):
            await store.list_sessions(SessionFilter(order=SessionOrder.NAME))


async def test_what_was_written_before_the_store_was_sealed_is_read_and_found(
    tmp_path: Path,
) -> None:
    place = SealedPlace(partial(SQLStore.sqlite, tmp_path), tmp_path, lambda: None)
    async with place.store() as store:
        await make(store, name="work")
        value = await store.logins.seal(ADA, "l0", "old")
        # Before there were data keys, the key of the file sealed logins.
        older = Encryption((tmp_path / "logins.key").read_text()).encrypt(b"older")
        for name, sealed in (("l0", value), ("l00", older)):
            await store.logins.put(LoginRecord(ADA, name, "key", "", "", OK, 1.0, sealed))
        assert "older" in await read_all(store)
    keyring = keyring_of(KEY, folder=tmp_path)  # that has the key of the logins
    async with SQLStore.sqlite(tmp_path, keyring=keyring) as store:
        found = await store.find(ADA, "", "work")
        assert found is not None
        assert "b'old', b'older'" in await read_all(store)
        await fill(store, place.canary)
        assert place.found() == {}
    async with place.store(KEY) as store:
        login = await store.logins.find(ADA, "l0")
        assert login is not None
        assert await store.logins.open(login) == b"old"


async def test_a_new_sealing_key_opens_what_the_former_one_sealed(place: SealedPlace) -> None:
    async with place.store(KEY) as store:
        await make(store, place.canary)
        read = await read_all(store)
    async with (
        place.store(KEY, NEW_KEY) as early,
        place.store(NEW_KEY, KEY),
        # It does not take the former key back.
        place.store(KEY, NEW_KEY) as late,
    ):
        assert await read_all(late) == read
        await Sessions(late).make("sh_b", owner=BEN, name="b")
        await Sessions(early).make("sh_c", owner=EVE, name="c")
    async with place.store(NEW_KEY) as store:
        assert await read_all(store) == read
        assert await store.find(BEN, "", "b") is not None
        assert await store.find(EVE, "", "c") is not None


async def test_a_store_without_its_data_keys_takes_no_key(tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path, keyring=keyring_of(KEY)) as store:
        await make(store)
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("DELETE FROM data_key")
    database.close()
    with pytest.raises(StoreUnavailable, match="data_key is empty"):
        async with SQLStore.sqlite(tmp_path, keyring=keyring_of(KEY)):
            pass


@pytest.mark.thorough
async def test_a_process_with_another_data_folder_does_not_end_the_logins_of_a_database(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    url = postgresql.fresh()
    folders = (tmp_path / "a", tmp_path / "b")
    for folder in folders:
        folder.mkdir()
    first, second = map(Keyring, folders)
    async with (
        SQLStore(RemoteDatabase(url), keyring=first) as store,
        SQLStore(RemoteDatabase(url), keyring=second) as other,
    ):
        sealed = await store.logins.seal(ADA, "shop", "value")
        with pytest.raises(StoreUnavailable, match="another"):
            await other.logins.seal(ADA, "bank", "value")
        assert sealed != await store.logins.seal(ADA, "shop", "value")


async def test_a_sealed_store_opens_with_its_key_alone(place: SealedPlace) -> None:
    async with place.store(KEY) as store:
        await make(store, place.canary)
    for keys in ((), (OTHER_KEY,)):
        with pytest.raises(StoreUnavailable, match=r"sealing\.keys"):
            async with place.store(*keys):
                pass
    with pytest.raises(StoreUnavailable, match="16"):
        async with place.store("short"):
            pass
    async with place.store(KEY) as store:
        assert await store.get("sh_a") is not None


MOVES = {
    "to the row of another session": "UPDATE state SET value = (SELECT value FROM state WHERE session_id = 'sh_b')",
    "to its own place, damaged": "UPDATE session SET reason = substr(metadata, 1, 16)",
    "to another column": "UPDATE state SET json_schema = value",
    "to another table": "UPDATE session SET metadata = (SELECT value FROM state WHERE session_id = 'sh_a')",
    "to a session of another principal": f"UPDATE session SET owner = '{EVE}'",
    "to another name": "UPDATE session SET name = (SELECT name FROM session WHERE id = 'sh_e') WHERE id = 'sh_a'",
    "to another snapshot": "UPDATE snapshot SET session_id = 'sh_a'",
    "to another login": "UPDATE login SET sealed = (SELECT sealed FROM login WHERE name = 'other')",
    "with its key to another principal": "UPDATE data_key SET digest = digest || '0' WHERE digest <> 'check'",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
async def test_a_sealed_value_that_was_moved_is_refused(tmp_path: Path, move: str) -> None:
    snapshot: dict[str, Any] = {"service": "shop", "seq": 1, "taken_at": 1.0, "epoch": 1}
    async with SQLStore.sqlite(tmp_path, keyring=keyring_of(KEY)) as store:
        await make(store)
        for session_id, owner in (("sh_b", ADA), ("sh_e", EVE)):
            await Sessions(store).make(session_id, "shop", owner=owner, name="other")
        saved = SnapshotRecord(session_id="sh_b", **snapshot, data=b"cookie")
        await store.write(Write("sh_b", NODE, 1, snapshots=[saved]))
        for name in ("shop", "other"):
            value = await store.logins.seal(ADA, name, name)
            await store.logins.put(LoginRecord(ADA, name, "key", "", "", OK, 1.0, value))
        assert "shop" in await read_all(store)
    with closing(sqlite3.connect(tmp_path / "statehold.db")) as database:
        database.execute(move)
        database.commit()
    async with SQLStore.sqlite(tmp_path, keyring=keyring_of(KEY)) as store:
        with pytest.raises((DecryptionFailed, StoreUnavailable), match=r"moved|another|changed"):
            await read_all(store)


async def test_nodes_that_need_the_key_of_a_principal_at_once_have_the_same(
    place: SealedPlace,
) -> None:
    async with place.store(KEY) as one, place.store(KEY) as other:
        await one.join(node_record(NODE))
        async with anyio.create_task_group() as tasks:
            for number, store in enumerate((one, other)):
                make = partial(Sessions(store).make, owner=ADA, state={"x": number})
                tasks.start_soon(make, f"sh_{number}")
                tasks.start_soon(store.logins.seal, BEN, "shop", "value")
        count = select(func.count()).select_from(schema.data_key)
        for store in (one, other):
            values = [await store.state(f"sh_{number}") for number in range(2)]
            assert [each and each.value for each in values] == [{"x": 0}, {"x": 1}]
            keys = await store.transactions.read(lambda each: each.scalar(count))
            assert keys == 3  # with the check row


KILLED = f"""\
import os, signal, sys
from pathlib import Path
import anyio
from statehold.sessions.store.sealing.encryption import Encryption
from statehold.sessions.store.sealing.keyring import Keyring
from statehold.sessions.store.sql import SQLStore

wrapped, encrypt = [], Encryption.encrypt

def kill(self, *arguments):
    wrapped.append(arguments)
    if len(wrapped) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return encrypt(self, *arguments)

async def read_keys():
    return ["{NEW_KEY}", "{KEY}"]

async def rotate():
    async with SQLStore.sqlite(Path(sys.argv[1]), keyring=Keyring(None, read_keys)):
        pass

Encryption.encrypt = kill
anyio.run(rotate)
"""


@pytest.mark.parametrize("step", [1, 2, 4])
async def test_a_rotation_that_was_killed_is_done_by_the_next_start(
    tmp_path: Path, step: int
) -> None:
    async with SQLStore.sqlite(tmp_path, keyring=keyring_of(KEY)) as store:
        await make(store)
        for owner in (BEN, EVE):
            await Sessions(store).make(f"sh_{owner[1]}", owner=owner)
        read = await read_all(store)
    with anyio.fail_after(60):
        command = [sys.executable, "-c", KILLED, tmp_path, str(step)]
        ran = await anyio.run_process(command, check=False)
    assert ran.returncode == -signal.SIGKILL
    for keys in ((KEY,), (NEW_KEY, KEY), (NEW_KEY,)):
        async with SQLStore.sqlite(tmp_path, keyring=keyring_of(*keys)) as store:
            assert await read_all(store) == read
            assert await store.get("sh_b") is not None


async def test_a_process_from_before_the_store_was_sealed_does_not_take_its_key(
    place: SealedPlace,
) -> None:
    async with place.store() as early:
        await make(early)
        async with place.store(KEY) as store:
            await Sessions(store).make("sh_b", owner=BEN)
        with pytest.raises(StoreUnavailable, match="start again"):
            await early.logins.seal(EVE, "shop", "value")
    async with place.store(KEY) as store:
        assert await store.get("sh_b") is not None


@pytest.mark.thorough
async def test_a_store_on_mariadb_refuses_a_sealing_key(mariadb: DatabaseServer) -> None:
    url = RemoteDatabase(mariadb.fresh())
    with pytest.raises(StoreUnavailable, match="MariaDB cannot be sealed"):
        async with SQLStore(url, keyring=keyring_of(KEY)):
            pass
    async with SQLStore(url) as store:
        await make(store)


async def test_data_of_a_principal_whose_key_is_deleted_cannot_be_read_from_a_copy(
    tmp_path: Path,
) -> None:
    folder, restored = tmp_path / "data", tmp_path / "restored"
    async with SQLStore.sqlite(folder, keyring=keyring_of(KEY)) as store:
        await make(store)
        await Sessions(store).make("sh_b", owner=BEN, name="b")
        back_up(folder, tmp_path / "copy.db")
        assert await store.access.forget(ADA) is None  # a process has its session
        await store.write(Write("sh_a", NODE, 1, session={"node": None}))
        assert await store.access.forget(ADA) == ["sh_a"]
        assert await store.get("sh_a") is None
        assert await store.check() == []
        # A principal that comes again has another key.
        await Sessions(store).make("sh_c", owner=ADA, name="again")
    restored.mkdir()
    shutil.copy(tmp_path / "copy.db", restored / "statehold.db")
    with closing(sqlite3.connect(restored / "statehold.db")) as copy:
        # The keys are those of now.
        copy.execute("ATTACH DATABASE ? AS now", [str(folder / "statehold.db")])
        copy.execute("DELETE FROM data_key")
        copy.execute("INSERT INTO data_key SELECT * FROM now.data_key")
        copy.commit()
    async with SQLStore.sqlite(restored, keyring=keyring_of(KEY)) as store:
        with pytest.raises(DecryptionFailed):
            await store.get("sh_a")
        assert await store.get("sh_b") is not None


async def test_a_write_that_fails_with_others_does_not_take_their_new_data_key_along(
    place: SealedPlace,
) -> None:
    async with place.store() as store:
        await make(store)
        await Sessions(store).make("sh_b", owner=ADA, name="b")
    async with place.store(KEY) as store:

        async def write(session_id: str, value: str) -> None:
            state = StateRecord(session_id=session_id, version=1, value={"x": 1})
            session = {"reason": value}
            try:
                await store.write(Write(session_id, NODE, 1, session=session, state=state))
            except InvalidArgument:
                refused.append(session_id)

        refused: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, "sh_a", "fine")
            tasks.start_soon(write, "sh_b", "\ud800")
        assert refused == ["sh_b"]
        await write("sh_a", "again")
    async with place.store(KEY) as store:
        record, state = await store.get("sh_a"), await store.state("sh_a")
        assert record is not None
        assert state is not None
        assert (record.reason, state.value) == ("again", {"x": 1})
