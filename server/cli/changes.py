"""Changing a session from the command line: through the process that holds it, or directly when none does."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import anyio.to_thread

from ...sessions.clock import SystemClock
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Event, Status
from ...sessions.live.session import Session
from ...sessions.node import Node
from ...sessions.records import BindingStatus, NodeRecord, SessionRecord
from ...sessions.store import SQLStore
from ...sessions.store.base import Loaded
from ...tools.footprint import FOLDERS
from ...tools.processes.workdir import plain
from ..config.model import Config
from ..control.socket import ControlRefused, ControlUnavailable, ask
from .parser import BUSY, FAILURE, NOT_FOUND

CAUSE = "cli"


class Refused(Exception):
    """Raised when one session cannot be seen or changed. Its text says what to do."""

    def __init__(self, code: str, message: str, exit_code: int = FAILURE) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code

    @classmethod
    def unknown(cls, wanted: str, data: Path) -> Refused:
        message = f"there is no session {wanted} in {data}; see: statehold sessions list --all"
        return cls("session_not_found", message, NOT_FOUND)


class SessionChanger:
    """Makes the changes of one command. It becomes a node when it has to own a session, until the end of the command."""

    def __init__(self, config: Config, store: SQLStore) -> None:
        self.config = config
        self.store = store
        self._stack = AsyncExitStack()
        self._node: Node | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def change(self, action: str, record: SessionRecord, force: bool) -> JSON:
        """Change one session and return `session_id`, `name`, `status` and whether it `changed`.

        Raises:
            Refused: the session was not changed.
        """
        if action == "purge":
            return await self._purge(record)
        if record.status in (Status.CLOSED, Status.CLOSING) and record.node is None:
            if action == "close":
                return _done(record, record.status, changed=False)
            raise Refused("session_closed", f"{record.id} is closed; make a new session")
        if record.node is not None:
            told = await self._ask(record, record.node, action, force)
            if told is not None:
                return told
            record = await self.take_off(record)
        return await self._change_free(action, record)

    # A session that a running process holds.

    async def _ask(self, record: SessionRecord, node: str, action: str, force: bool) -> JSON | None:
        answer = await self.ask(record, node, action, force=force)
        if answer is None:
            return None
        session: JSON = answer.get("session", {})
        status = str(session.get("status", record.status.value))
        return _done(record, status, changed=status != record.status.value)

    async def ask(
        self, record: SessionRecord, node: str, action: str, **details: Any
    ) -> JSON | None:
        """Ask a process to act on a session. Returns None when it does not answer.

        Raises:
            Refused: the process refuses.
        """
        request = {"op": action, "session": record.id, "owner": record.owner, **details}
        try:
            return await ask(self.config.data / "nodes", node, request)
        except ControlUnavailable:
            return None
        except ControlRefused as error:
            codes = {"session_not_found": NOT_FOUND, "session_busy": BUSY}
            message = f"{record.id}: {error.message} {error.recovery}".strip()
            raise Refused(error.code, message, codes.get(error.code, FAILURE)) from None

    async def ask_any(
        self, record: SessionRecord, action: str, *, unless: Collection[str], **details: Any
    ) -> JSON | None:
        """Ask the running processes, the newest first, until one of them acts on a session that no process holds.

        Returns None when no other process runs, or each refuses with a code of `unless`.

        Raises:
            Refused: a process refuses with another code.
        """
        for node in reversed(await self.store.nodes()):
            if self._node is not None and node.id == self._node.id:
                continue
            try:
                answer = await self.ask(record, node.id, action, **details)
            except Refused as error:
                if error.code not in unless:
                    raise
                continue
            if answer is not None:
                return answer
        return None

    async def take_off(self, record: SessionRecord) -> SessionRecord:
        """Take a session off a node that does not answer, if it is proved dead.

        Raises:
            Refused: the node lives.
        """
        await (await self.joined()).recover()
        fresh = await self.store.get(record.id)
        if fresh is None:
            raise Refused.unknown(record.id, self.config.data)
        if fresh.node is not None:
            raise await self.busy(fresh, "which does not answer; end that process, then try again")
        return fresh

    async def busy(self, record: SessionRecord, advice: str) -> Refused:
        """Return the error for a session that another process holds."""
        node = next((n for n in await self.store.nodes() if n.id == record.node), None)
        message = f"{record.id} is open in {_place(node)}, {advice}"
        return Refused("session_busy", message, BUSY)

    # Sessions that no process holds.

    async def _change_free(self, action: str, record: SessionRecord) -> JSON:
        if record.status in (Status.CLOSED, Status.CLOSING):
            return await self.change(action, record, False)
        if action == "resume":
            return await self._resume_elsewhere(record)
        if action == "pause" and record.status is Status.PAUSED:
            return _done(record, Status.PAUSED, changed=False)
        session = await self.claimed(record)
        if action == "pause":
            return await self._paused(session)
        return await self._closed(session)

    async def _resume_elsewhere(self, record: SessionRecord) -> JSON:
        """Ask a running process to open the session: this process ends at once, and its live connections with it."""
        answer = await self.ask_any(record, "resume", unless=("session_not_found",), force=False)
        if answer is not None:
            status = str(answer.get("session", {}).get("status", record.status.value))
            return _done(record, status, changed=status != record.status.value)
        raise Refused(
            "service_unavailable",
            f"{record.id}: no Statehold that runs on this data folder opens it; it resumes by itself when called",
        )

    async def claimed(self, record: SessionRecord) -> Session:
        """Claim a session that no process holds for this process.

        Raises:
            Refused: another process was faster.
        """
        node = await self.joined()
        loaded = await self.store.claim(record.id, node.id, time.time())
        if loaded is None:
            fresh = await self.store.get(record.id) or record
            raise await self.busy(fresh, "which was faster; try again")
        return _owned(loaded, self.store, node.id)

    async def _paused(self, session: Session) -> JSON:
        session.apply(
            Event.ADOPTED if session.status is Status.ERROR else Event.PAUSE_REQUESTED, cause=CAUSE
        )
        await self._save(session, status=Status.PAUSED, due_at=session.deadline(), node=None)
        return _done(session.record, Status.PAUSED, changed=True)

    async def _closed(self, session: Session) -> JSON:
        creating = session.status is Status.CREATING
        session.apply(Event.CLOSE_FORCED if creating else Event.CLOSE_REQUESTED, cause=CAUSE)
        session.apply(Event.RELEASED, cause=CAUSE)
        now, retention = time.time(), self.config.timeouts.retention
        await self._save(
            session,
            status=Status.CLOSED,
            reason="requested",
            closed_at=now,
            due_at=now + retention if retention else None,
            node=None,
        )
        return _done(session.record, Status.CLOSED, changed=True)

    async def _save(self, session: Session, **columns: Any) -> None:
        bindings = [
            binding.model_copy(update={"status": BindingStatus.LOST})
            for binding in await self.store.bindings(session.id)
            if binding.status in (BindingStatus.OPEN, BindingStatus.KEPT)
        ]
        try:
            await session.save(bindings=bindings, status_at=session.record.status_at, **columns)
        except SessionError as error:
            raise Refused(error.code, f"{session.id}: {error.message}", BUSY) from None

    async def _purge(self, record: SessionRecord) -> JSON:
        if not await self.store.purge(record.id):
            if await self.store.get(record.id) is None:
                raise Refused.unknown(record.id, self.config.data)
            raise Refused("session_busy", f"{record.id} is {record.status.value}; close it first")
        await anyio.to_thread.run_sync(self.forget, record.id)
        return _done(record, "purged", changed=True)

    def forget(self, session_id: str) -> None:
        """Remove the files of a session that was deleted from the store."""
        for kept in FOLDERS:
            shutil.rmtree(self.config.data / kept / plain(session_id), ignore_errors=True)

    async def joined(self, what: str = "command line") -> Node:
        """Join the data folder as a node, once, until the end of the command."""
        if self._node is None:
            starting = Node.start(
                self.store,
                self.config.data,
                address=f"{what}, pid {os.getpid()}",
                clock=time.time,
            )
            self._node = await self._stack.enter_async_context(starting)
        return self._node


def _owned(loaded: Loaded, store: SQLStore, node: str) -> Session:
    return Session(
        loaded.session,
        loaded.state,
        store=store,
        node=node,
        clock=SystemClock(),
        last_seq=loaded.last_seq,
    )


def _done(record: SessionRecord, status: str, *, changed: bool) -> JSON:
    value = status.value if isinstance(status, Status) else status
    return {"session_id": record.id, "name": record.name, "status": value, "changed": changed}


def _place(node: NodeRecord | None) -> str:
    if node is None:
        return "another process"
    return node.address or f"pid {node.pid}"
