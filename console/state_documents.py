"""The state of a session and its earlier versions, as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic_core import from_json
from starlette.responses import Response

from ..sessions.actions.branches import BASE
from ..sessions.errors import SessionNotFound
from ..sessions.records import HistoryFilter, JournalKind, SessionRecord, StateRecord
from ..sessions.state.versions import StateVersions, read_changes
from ..sessions.times import timestamp
from .requests import StateQuery
from .routes import SESSION, VIEW, ApiCall, ApiError, json_response, route
from .session_documents import ConsoleSessions

if TYPE_CHECKING:
    from ..sessions.store.sql import SQLStore

MAX_CHANGES: Final = 1000
"""Most changes that are read from a journal."""


class StateDocuments:
    """The states of the sessions of a store."""

    def __init__(self, sessions: ConsoleSessions, store: SQLStore) -> None:
        self._sessions = sessions
        self._store = store

    @route(
        "GET",
        f"{SESSION}/state",
        "Read its state, or an earlier version",
        audience="guest",
        shared=VIEW,
    )
    async def state(self, call: ApiCall, query: StateQuery) -> Response:
        record, state = await self._find(call)
        if query.version in (None, state.version):
            return json_response(
                {
                    "version": state.version,
                    "value": state.value,
                    "unknown": [],
                    "schema": state.json_schema,
                }
            )
        versions = await self._read(record, state)
        earlier = versions.at(query.version)
        if earlier is None:
            raise ApiError(
                "not_found",
                f"Version {query.version} of the state is not known.",
                "Only changes that were made in a run are in the journal; see state/versions.",
            )
        return json_response(
            {
                "version": earlier.version,
                "value": earlier.value,
                "unknown": earlier.unknown,
                "schema": state.json_schema,
            }
        )

    @route(
        "GET",
        f"{SESSION}/state/versions",
        "List the versions of its state that the journal leads back to",
        audience="guest",
        shared=VIEW,
    )
    async def state_versions(self, call: ApiCall) -> Response:
        versions = await self._read(*await self._find(call))
        known = [
            change
            for version, change in sorted(versions.changes.items(), reverse=True)
            if versions.earliest < version <= versions.version
        ]
        return json_response(
            {
                "version": versions.version,
                "earliest": versions.earliest,
                "has_first": versions.first is not None,
                "changes": [
                    {
                        "version": change.version,
                        "at": timestamp(change.at),
                        "seq": change.seq,
                        "run_id": change.run,
                    }
                    for change in known
                ],
            }
        )

    async def _find(self, call: ApiCall) -> tuple[SessionRecord, StateRecord]:
        record = await self._sessions.find_for(call)
        state = await self._store.state(record.id)
        if state is None:
            raise SessionNotFound
        return record, state

    async def _read(self, record: SessionRecord, state: StateRecord) -> StateVersions:
        changes = HistoryFilter(kinds=[JournalKind.STATE], limit=MAX_CHANGES)
        entries = await self._sessions.read(record, changes)
        base = None if record.parent is None else await self._store.snapshot(record.id, BASE)
        first = None if base is None else from_json(base.data)
        return StateVersions(state.version, state.value, read_changes(entries), first)
