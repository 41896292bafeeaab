"""Sessions as documents: export, import, and refused documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counting import Counting, Nobody
from support.engine import Build, Engine

from statehold.sessions.actions.document import Document, json_text, read_document
from statehold.sessions.actions.import_ import IMPORTED_FROM
from statehold.sessions.calls.request import Request
from statehold.sessions.errors import (
    InvalidArgument,
    NameTaken,
    SessionError,
    SessionLimit,
    SessionNotFound,
    StateInvalid,
    StoreUnavailable,
)
from statehold.sessions.journal.redaction import REDACTED
from statehold.sessions.lifecycle import Status
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, HistoryFilter, Principal, SessionFilter, Timeouts
from statehold.sessions.store import Write

ANN = Principal(subject="ann")
STATE: dict[str, Any] = {"n": 2**80, "x": 1.0, "deep": {"list": [None, True, "é"]}}


async def filled(engine: Engine) -> str:
    """A session with everything that one can have, as it stands after a pause."""
    session = await engine.create(
        name="work",
        state=STATE,
        state_schema={"type": "object"},
        metadata={"team": {"size": 3}},
        labels={"user_id": "u/1", "workflow_id": "w"},
        idle=100.0,
    )
    for _ in range(3):
        await engine.count(session.id)
    request = Request(LOCAL, session.id, "counter", "inc", {}, operation_id="op-1")
    await engine.router.call(request, Nobody())
    await engine.registry.history.note(LOCAL, session.id, "user", "buy tea", "run 1")
    await engine.registry.history.write_summary(LOCAL, session.id, "Tea was bought.", ["tea"])
    await engine.registry.states.update(LOCAL, session.id, {"n": 2**80 + 1})
    await engine.registry.pause(LOCAL, session.id)
    return session.id


async def document_of(engine: Engine, session: str, *, secrets: bool = True) -> Document:
    _, document = await engine.registry.porting.export_session(LOCAL, session, secrets=secrets)
    return read_document(json_text(document.model_dump()))


async def everything(engine: Engine) -> list[str]:
    records, _ = await engine.store.list_sessions(SessionFilter(limit=1000))
    return sorted(record.id for record in records)


async def test_an_imported_session_is_the_exported_one_again(build: Build):
    """import(export(x)) is x, under another id and owner, and paused."""
    async with build(Counting(pause="snapshot")) as engine:
        session = await filled(engine)
        before = await document_of(engine, session)
        imported = await engine.registry.porting.import_session(ANN, before)
        new = imported.record.id
        assert (imported.left_out, new != session) == ([], True)
        info = await engine.registry.info(ANN, new)
        assert (info["status"], info["name"], info["user_id"]) == ("paused", "work", "u/1")
        assert info["metadata"] == {"team": {"size": 3}, IMPORTED_FROM: session}
        with pytest.raises(SessionNotFound):
            await engine.registry.info(LOCAL, new)
        _, after = await engine.registry.porting.export_session(ANN, new, secrets=True)
        old, fresh = before.model_dump(), after.model_dump()
        assert [entry["request"]["code"] for entry in fresh["journal"][-2:]] == ["T02", "T08"]
        assert fresh["journal"][:-2] == old["journal"]
        for part in ("state", "receipts", "summary", "bindings", "fork"):
            assert fresh[part] == old[part]
        assert type(fresh["state"]["value"]["x"]) is float
        assert fresh["session"]["timeouts"] == old["session"]["timeouts"]
        [bound] = fresh["bindings"]
        assert bound["snapshot"] is not None
        # The snapshot is restored, the operation is not run again, and the caller learns what happened.
        repeat = Request(ANN, new, "counter", "inc", {}, operation_id="op-1")
        again = await engine.router.call(repeat, Nobody())
        assert again.payload["structuredContent"]["count"] == 4
        answer = await engine.call(new, principal=ANN)
        assert answer.payload["structuredContent"]["count"] == 5
        assert answer.notice is not None
        assert "imported" in answer.notice
        state = await engine.registry.states.read(ANN, new, "/n")
        assert (state.value, state.version) == (2**80 + 1, 1)
        assert await engine.store.check() == []


async def test_without_secrets_there_are_none(build: Build):
    """Neither the snapshots of services nor values that look secret are exported."""
    async with build(Counting(pause="snapshot")) as engine:
        session = await filled(engine)
        await engine.registry.states.update(LOCAL, session, {"password": "hunter2", "a": [1.0]})
        await engine.registry.rename_delete.rename(LOCAL, session, metadata={"api_key": "hunter2"})
        await engine.registry.pause(LOCAL, session)
        document = await document_of(engine, session, secrets=False)
        assert "hunter2" not in json.dumps(document.model_dump())
        assert document.state.value["password"] == REDACTED
        assert document.state.value["a"] == [1.0]
        assert [bound.snapshot for bound in document.bindings] == [None]
        assert [(receipt.operation_id, receipt.result) for receipt in document.receipts] == [
            ("op-1", None)
        ]
        exact = await document_of(engine, session)
        assert exact.state.value["password"] == "hunter2"
        # A document may have been edited so that it holds a secret.
        call = next(entry for entry in document.journal if entry.kind == "call")
        call.request, call.error = {"token": "hunter2"}, "password=hunter2"
        imported = await engine.registry.porting.import_session(ANN, document)
        assert await engine.count(imported.record.id, principal=ANN) == 1
        entries = await engine.store.history(imported.record.id, HistoryFilter(limit=1000))
        assert "hunter2" not in str(entries)
        assert len(entries) > len(document.journal)


def place(path: str, value: Any) -> Any:
    """Return a function that sets a value at a place of a document, or with `del` removes it."""

    def change(document: Any) -> None:
        *way, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(".")]
        for step in way:
            document = document[step]
        if value is del_:
            del document[last]
        else:
            document[last] = value

    return change


del_ = object()
WRONG = {
    "format": "other",
    "version": 2,
    "more": 1,
    "secrets": "yes",
    "session": del_,
    "session.owner": ":bob",
    "session.node": "n",
    "session.metadata": {"x": "x" * 17_000},
    "session.user_id": "a\nb",
    "session.name": "../x",
    "session.namespace": "a/b",
    "session.timeouts.idle": -1.0,
    "session.timeouts.lifetime": 1e300,
    "state.value": [1],
    "state.value.n": {"x": "x" * (1 << 20)},
    "state.version": -1,
    "state.json_schema": {"type": 5},
    "bindings.0.service": "other",
    "bindings.0.generation": "1",
    "bindings.0.snapshot.data": "????",
    "bindings.0.snapshot.taken_at": "now",
    "journal.0.seq": 0,
    "journal.1.seq": 1,
    "journal.-1.kind": "dance",
    "journal.0.epoch": 1,
    "journal.0.request": "x" * 300_000,
    "journal.0.error": 5,
    "receipts.0.result": [1],
    "receipts.0.error": {"code": 1},
    "receipts.0.operation_id": "",
    "summary.text": "x" * 20_001,
    "summary.through_seq": 1.5,
}


async def test_a_wrong_document_is_refused_before_anything_is_made(build: Build):
    """The error names the place, and the store holds nothing new afterwards."""
    async with build(Counting(pause="snapshot")) as engine:
        session = await filled(engine)
        text = json_text((await document_of(engine, session)).model_dump())
        there = await everything(engine)
        for path, value in WRONG.items():
            document = json.loads(text)
            place(path, value)(document)
            with pytest.raises(SessionError) as caught:
                await engine.registry.porting.import_session(
                    ANN, read_document(json_text(document))
                )
            assert isinstance(caught.value, InvalidArgument | StateInvalid), path
            last = path.split(".")[-1] if path.split(".")[-1] not in ("0", "1") else path
            message = caught.value.message
            assert last in message or path.split(".")[0] in message or "state" in message, (
                path,
                message,
            )
        for broken in (
            b"",
            b"[]",
            b"{",
            b'{"a":' * 300,
            b"nan",
            text[:-5],
            text + b"x",
            text.replace(b'"size":3', b'"size":1e999'),
        ):
            with pytest.raises(InvalidArgument):
                read_document(broken)
        assert await everything(engine) == there


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: its container and its key."""
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = list(enumerate(cast("list[Any]", value)))
    for key, inner in members:
        yield value, key
        yield from places(inner)


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_any_document_is_read_or_refused(data: st.DataObject):
    """Reading raises no other error, whatever the document holds and wherever."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
    document: Any = json.loads(_SOUND)
    where, key = data.draw(st.sampled_from(list(places(document))))
    where[key] = data.draw(values)
    try:
        exported = read_document(json_text(document))
    except InvalidArgument:
        return
    assert read_document(json_text(exported.model_dump())) == exported


_SOUND = json.dumps(
    {
        "format": "statehold.session",
        "version": 1,
        "exported_at": 1.0,
        "secrets": True,
        "session": {
            "id": "sh_a",
            "namespace": "",
            "name": None,
            "status": "paused",
            "reason": None,
            "created_at": 1.0,
            "used_at": 1.0,
            "closed_at": None,
            "timeouts": {"idle": 1.0, "paused": 1.0, "lifetime": 1.0},
            "metadata": {},
            "user_id": None,
            "agent_id": None,
            "team_id": None,
            "workflow_id": None,
        },
        "fork": {"parent": "sh_b", "state": {}},
        "state": {"version": 0, "value": {"a": [1]}, "json_schema": None},
        "bindings": [
            {
                "service": "counter",
                "generation": 1,
                "config_hash": "",
                "snapshot": {"taken_at": 1.0, "data": "eyJkYXRhIjoxLCJibG9icyI6e319"},
            }
        ],
        "journal": [
            {
                "seq": 1,
                "kind": "message",
                "service": None,
                "tool": None,
                "status": None,
                "run": None,
                "role": "user",
                "operation_id": None,
                "started_at": 1.0,
                "ended_at": None,
                "generation": 0,
                "request": {"content": "hi"},
                "result": None,
                "error": None,
            }
        ],
        "receipts": [],
        "summary": None,
    }
)


async def test_an_import_can_leave_out_services_that_are_not_here(build: Build):
    """With strict it is refused; otherwise it is left out and reported."""
    policy = Policy(longest=Timeouts(idle=50, paused=0, lifetime=0), timeouts=Timeouts(idle=10))
    async with build(Counting(pause="snapshot")) as elsewhere:
        document = await document_of(elsewhere, await filled(elsewhere))
    document.session.timeouts.paused = 5.0
    async with build(Counting("other"), policy=policy) as engine:
        await engine.create(ANN, name="work")
        with pytest.raises(InvalidArgument, match="counter"):
            await engine.registry.porting.import_session(ANN, document)
        imported = await engine.registry.porting.import_session(ANN, document, strict=False)
        assert len(imported.left_out) == 3
        info = await engine.registry.info(ANN, imported.record.id)
        assert (info["name"], info["services"], info["idle_seconds"]) == (None, [], 10.0)
        with pytest.raises(NameTaken):
            await engine.registry.porting.import_session(ANN, document, strict=False, name="work")
        named = await engine.registry.porting.import_session(
            ANN, document, strict=False, name="other"
        )
        assert named.record.name == "other"


async def test_an_import_counts_like_any_new_session_and_leaves_nothing_when_it_fails(build: Build):
    async with build(policy=Policy(sessions_per_principal=1)) as engine:
        session = await engine.create()
        document = await document_of(engine, session.id)
        there = await everything(engine)
        with pytest.raises(SessionLimit):
            await engine.registry.porting.import_session(LOCAL, document)
        assert await everything(engine) == there
        imported = await engine.registry.porting.import_session(ANN, document)
        assert (await engine.registry.ready(ANN, imported.record.id)).status is Status.IDLE


async def test_an_import_that_fails_half_way_leaves_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    """The session is imported as a whole or not at all, whichever part could not be written."""
    async with build(Counting(pause="snapshot")) as engine:
        document = await document_of(engine, await filled(engine))
        there = await everything(engine)
        write = engine.store.write
        for failing in (1, 2):
            written: list[Write] = []

            async def fail(
                change: Write, failing: int = failing, writes: list[Write] = written
            ) -> None:
                writes.append(change)
                if len(writes) == failing:
                    raise StoreUnavailable("The disk is full.")
                await write(change)

            monkeypatch.setattr(engine.store, "write", fail)
            with pytest.raises(StoreUnavailable):
                await engine.registry.porting.import_session(ANN, document)
            monkeypatch.setattr(engine.store, "write", write)
            assert len(written) == failing + 1
            assert await everything(engine) == there
            assert await engine.store.check() == []
        # One that a value makes impossible is refused alone.
        document.journal[0].tool = "half \ud83d"
        with pytest.raises(InvalidArgument):
            await engine.registry.porting.import_session(ANN, document)
        assert await everything(engine) == there


async def test_a_forked_session_is_moved_with_what_it_was_forked_from(build: Build):
    async with build() as engine:
        parent = await engine.create(state={"a": 1})
        forked = await engine.registry.branches.fork(LOCAL, parent.id)
        [child] = forked.children
        await engine.registry.states.update(LOCAL, child.id, {"b": 2})
        document = await document_of(engine, child.id)
        assert document.fork is not None
        assert (document.fork.parent, document.fork.state) == (parent.id, {"a": 1})
        imported = await engine.registry.porting.import_session(LOCAL, document)
        await engine.registry.states.update(LOCAL, parent.id, {"c": 3})
        merged = await engine.registry.branches.merge(LOCAL, parent.id, [imported.record.id])
        assert merged.state.value == {"a": 1, "b": 2, "c": 3}


async def test_too_large_a_document_is_refused_with_the_way_out(build: Build):
    async with build() as engine:
        session = await engine.create(state={"x": "x" * 10_000})
        export = engine.registry.porting.export_session
        _, exported = await export(LOCAL, session.id, limit=20_000)
        assert len(json_text(exported.model_dump())) < 20_000
        with pytest.raises(InvalidArgument) as caught:
            await export(LOCAL, session.id, limit=9_000)
        assert "statehold sessions export" in caught.value.recovery


async def test_a_deleted_session_is_gone_and_so_are_its_calls(build: Build):
    """Open sessions are closed first, and running calls are cancelled."""
    async with build() as engine:
        session = await filled(engine)
        busy = await engine.create(name="busy")
        purged: list[str] = []
        engine.registry.on_purged.append(purged.append)
        outcome: list[str] = []

        async def call() -> None:
            try:
                await engine.call(busy.id, "hold")
            except SessionError as error:
                outcome.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await engine.until(lambda: busy.in_flight)
            gone = await engine.registry.rename_delete.delete(LOCAL, busy.id, force=True)
            assert gone["name"] == "busy"
        assert len(outcome) == 1
        await engine.registry.rename_delete.delete(LOCAL, "work")
        assert purged == [busy.id, session]
        for ref in (session, busy.id, "work"):
            with pytest.raises(SessionNotFound):
                await engine.registry.rename_delete.delete(LOCAL, ref)
        assert await everything(engine) == []
        assert await engine.store.check() == []
        other = await engine.create(name="work")
        with pytest.raises(SessionNotFound):
            await engine.registry.rename_delete.delete(ANN, other.id)
        closed = await engine.create()
        await engine.registry.close(LOCAL, closed.id)
        await engine.registry.rename_delete.delete(LOCAL, closed.id)
        assert await everything(engine) == [other.id]
