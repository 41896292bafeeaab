"""Records for the tests of stores and nodes, with defaults for most fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    BindingRecord,
    JournalKind,
    JournalRecord,
    NodeRecord,
    SessionRecord,
    StateRecord,
)
from statehold.sessions.store.sql import SQLStore

NODE = "n_one"
OTHER = "n_two"


def node_record(node: str) -> NodeRecord:
    return NodeRecord(id=node, proof_key="key", address=f"stdio, {node}", started_at=1.0, pid=7)


def session_record(session_id: str, **values: Any) -> SessionRecord:
    defaults: dict[str, Any] = {
        "owner": "local",
        "status": Status.IDLE,
        "created_at": 1.0,
        "used_at": 1.0,
        "status_at": 1.0,
        "node": NODE,
    }
    return SessionRecord(id=session_id, **{**defaults, **values})


def entry(session_id: str, seq: int, *, epoch: int = 1, **values: Any) -> JournalRecord:
    defaults: dict[str, Any] = {"kind": JournalKind.CALL, "tool": "count", "started_at": 2.0}
    return JournalRecord(session_id=session_id, seq=seq, epoch=epoch, **{**defaults, **values})


class Sessions:
    """Makes sessions in a store, with defaults for most fields."""

    def __init__(self, store: SQLStore) -> None:
        self.store = store

    async def make(
        self,
        session_id: str,
        *services: str,
        state: dict[str, Any] | None = None,
        per_owner: int = 0,
        **values: Any,
    ) -> SessionRecord:
        record = session_record(session_id, services=list(services), **values)
        bound = [BindingRecord(session_id=session_id, service=service) for service in services]
        carried = StateRecord(session_id=session_id, value=state or {})
        await self.store.create(record, carried, bound, per_owner=per_owner)
        return record


async def version_of(store: SQLStore, session_id: str = "sh_a") -> int:
    """Return the version of a state that there has to be."""
    state = await store.state(session_id)
    assert state is not None
    return state.version


MakeStore = Callable[..., SQLStore]
