"""Reading and changing the state of the sessions of one registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anyio import to_thread

from ..core import Core
from ..errors import SessionBusy, StateConflict
from ..journal.entries import CallEntry, excerpt
from ..lifecycle import LIVE, OPEN, TABLE, Event, Status
from ..live.binding import has_orphans
from ..live.directory import Directory
from ..live.quota import Quota
from ..live.session import LiveSession, UnconfirmedUpdates
from ..records import JournalKind, Principal, StateRecord
from ..services import ToolResult
from ..state.patch import MISSING, Mode, copy_json, size_of, tokens_of, update_state, value_at
from ..state.state_schema import check_value
from ..transitions.access import Access

MAX_TRIES = 8


@dataclass(frozen=True, slots=True)
class PathValue:
    """The value at a path of a state, and the version of the state. The value is a copy."""

    session_id: str
    version: int
    exists: bool
    value: Any = None


@dataclass(frozen=True, slots=True)
class RunChange:
    """The run in which a state is changed, and the call that changes it, for the journal."""

    run: str
    tool: str
    arguments: Mapping[str, Any]


Change = Callable[[StateRecord], StateRecord]


class States:
    """The states of one registry's sessions. It lives as long as the registry; every method may be called from any task."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        access: Access,
        quota: Quota,
    ) -> None:
        self._core = core
        self._directory = directory
        self._access = access
        self._quota = quota
        self.on_changed: list[Callable[[str, int], None]] = []
        """Called with the id of a session and the version of its state that is durable by now."""

    async def read(
        self, principal: Principal, ref: str, path: str = "", namespace: str | None = None
    ) -> PathValue:
        """Return the value at a path of a session's state. This does not count as use, resumes nothing and claims nothing.

        Raises:
            InvalidArgument: `path` is not a JSON pointer.
            SessionNotFound: unknown, foreign or purged; a closed session is read like an open one.
        """
        tokens = tokens_of(path)
        state = await self._directory.state(principal, ref, namespace)
        value = value_at(state.value, tokens)
        if value is MISSING:
            return PathValue(state.session_id, state.version, False)
        return PathValue(state.session_id, state.version, True, copy_json(value))

    async def version(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> tuple[str, int]:
        """Return the id of an open session and the version of its state.

        Raises:
            SessionNotFound, SessionExpired, SessionClosed, SessionFailed: there is no such open session.
        """
        state = await self._directory.state(principal, ref, namespace, open_only=True)
        return state.session_id, state.version

    async def update(
        self,
        principal: Principal,
        ref: str,
        values: object,
        *,
        mode: Mode = "merge",
        if_version: int | None = None,
        path: str = "",
        run: str | None = None,
    ) -> StateRecord:
        """Change the state of a session (T06). The new version is durable on return.

        This counts as use, so it resumes a paused session, but it opens no connection. The state of a session in error, of
        one that is being created, and of a paused one that is not resumed automatically, or whose connections an earlier
        process left, is changed without a change of its status. With a run, the journal gets an entry of the change.

        Raises:
            StateConflict, StateInvalid, InvalidArgument: nothing was changed.
        """

        def change(state: StateRecord) -> StateRecord:
            return update_state(
                state,
                values,
                mode=mode,
                if_version=if_version,
                path=path,
                limit=self._core.policy.state_bytes,
            )

        arguments: dict[str, Any] = {"values": values, "mode": mode}
        if path:
            arguments["path"] = path
        in_run = None if run is None else RunChange(run, "state_update", arguments)
        return await self.change(principal, ref, change, in_run=in_run)

    async def change(
        self,
        principal: Principal,
        ref: str,
        change: Change,
        *,
        in_thread: bool = False,
        in_run: RunChange | None = None,
    ) -> StateRecord:
        """Replace the state of a session by the result of `change`, which may be called several times.

        If it returns its argument, nothing is written. With `in_thread` it is called off the event loop.

        Raises:
            StateInvalid: the result does not fit the session's schema.
            SessionBusy: another process holds the session.
        """
        for _ in range(MAX_TRIES):
            session = await self._directory.find(principal, ref)
            stays_paused = not self._core.policy.auto_resume or has_orphans(
                session.bindings.values()
            )
            if session.status is Status.CREATING or (
                session.status is Status.PAUSED and stays_paused
            ):
                async with self._access.hold(principal, ref) as session:
                    newer = await change_state(session, change, self._quota, in_thread=in_thread)
                    await self._journal(session, newer, in_run)
            else:
                session = await self._access.ready(principal, ref)
                newer = await change_state(
                    session, change, self._quota, live=True, in_thread=in_thread
                )
                await self._journal(session, newer, in_run)
            if newer is not None:
                for tell in self.on_changed:
                    tell(newer.session_id, newer.version)
                return newer
        raise SessionBusy("The session keeps changing.")

    async def _journal(
        self, session: LiveSession, newer: StateRecord | None, in_run: RunChange | None
    ) -> None:
        core = self._core
        if newer is None or in_run is None or not core.policy.journal_calls:
            return
        now, owner = core.clock.now(), session.record.owner
        entry = CallEntry(
            session.id,
            core.node.id,
            session.record.epoch,
            0,
            None,
            in_run.tool,
            in_run.arguments,
            now,
            now,
            session.generation,
            excerpt(
                ToolResult({"content": [{"type": "text", "text": f"version {newer.version}"}]})
            ),
            None,
            in_run.run,
            core.policy.journal_bytes,
            core.redactor,
            kind=JournalKind.STATE,
        )
        if not self._quota.room(owner):
            entry.withhold()
        await core.redactions.redact(entry, owner)
        self._quota.count(owner, entry.approximate_bytes())
        entry.seq = session.next_seq()
        core.store.append_call(entry, owner)


async def change_state(
    session: LiveSession,
    change: Change,
    quota: Quota | None = None,
    *,
    live: bool = False,
    in_thread: bool = False,
) -> StateRecord | None:
    """Replace the state of a session that this process owns by the result of `change`, unless that is its argument.

    `quota` bounds the bytes that the owner stores; the operator's own commands have none.

    Returns None when the session's status does not allow it.

    Raises:
        StateInvalid: the result does not fit the session's schema.
        SessionLimit: its owner may not store more.
    """
    while True:
        try:
            proposal = await _propose(session, change, quota, live=live, in_thread=in_thread)
        except StateConflict:
            # The newer state may be withdrawn, and a caller that reads again gets the durable one until it is stored.
            if await session.wait_for_store():
                raise
        else:
            return proposal and await session.store_state(*proposal)


async def _propose(
    session: LiveSession, change: Change, quota: Quota | None, *, live: bool, in_thread: bool
) -> tuple[StateRecord, UnconfirmedUpdates] | None:
    async with session.revising:
        while True:
            if not _can_change(session, live):
                return None
            current = session.state
            proposed = await to_thread.run_sync(change, current) if in_thread else change(current)
            if current.json_schema is not None and proposed is not current:
                await check_value(
                    current.json_schema, proposed.value, session.id, owner=session.record.owner
                )
            # A failed write withdraws `current`; a thread may take long enough for that.
            if session.state is current and _can_change(session, live):
                break
        if quota is not None and proposed is not current:
            growth = size_of(proposed.value) - size_of(current.value)
            quota.admit(session.record.owner, growth)
        if (session.status, Event.STATE_UPDATED) in TABLE:
            session.apply(Event.STATE_UPDATED)
        return proposed, session.propose_state(proposed)


def _can_change(session: LiveSession, live: bool) -> bool:
    """Whether the state of a session can be changed now: it is open, and with `live` idle or active."""
    return not session.ownership_ended.is_set() and session.status in (LIVE if live else OPEN)
