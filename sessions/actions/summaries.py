"""Summaries by a model of the user's: its input, and what is done with the answer.

The model is outside: a function that takes JSON and returns JSON. Without one nothing here does anything.
live/due_summaries.py says when a summary is written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio.to_thread

from ..core import Core
from ..errors import (
    InvalidArgument,
    NameTaken,
    SessionError,
    SessionFenced,
    SessionLimit,
    StoreUnavailable,
)
from ..journal.model_answer import ModelAnswer
from ..json_codec import JSON
from ..live.budget import Budget
from ..live.directory import Directory
from ..live.due_summaries import DueSummaries
from ..records import HistoryFilter, JournalKind, Principal, SessionRecord, SummaryRecord
from ..store.base import Write
from ..validation import validate_name
from .history import Histories, show, summarize
from .rename_delete import RenameDelete

logger = logging.getLogger("statehold.sessions")

Summarize = Callable[[JSON], Awaitable[object]]
"""Returns `{"summary": ..., "topics": [...], "name": ...}` for the input of write_by_model(), of which only the first is
required. Raises ValueError if it cannot."""

MAX_ENTRIES: Final = 200
"""Most entries of the history that a model gets."""
INPUT_CHARACTERS: Final = 200_000
"""About the most characters of these entries."""
MAX_AT_ONCE: Final = 2
"""Summaries that are written at once."""
MAX_WAITING: Final = 100
"""Summaries that may wait, of which each principal has a share; more are left out."""
MAX_NAMES: Final = 5
"""Tries to give a session a name that is taken, each with another number."""


class Summaries:
    """Writes the summaries of one registry. A failure is logged once, until the model answers again."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        history: Histories,
        rename_delete: RenameDelete,
        due: DueSummaries,
        model: Summarize | None,
    ) -> None:
        self._core = core
        self._directory = directory
        self._history = history
        self._rename_delete = rename_delete
        self._due = due
        self._model = model
        self._pending: set[str] = set()
        self._turns = Budget(
            MAX_AT_ONCE, queue=MAX_WAITING, queue_seconds=math.inf, shared=core.policy.shared
        )
        self._has_failed = False

    async def run(self) -> None:
        """Write the summaries that are due, in the background, until cancelled."""
        while True:
            principal, session_id = await self._due.take()
            if session_id not in self._pending:
                self._core.tasks.spawn(self.write_by_model, principal, session_id)

    async def write_by_model(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> str | None:
        """Have the model sum up a session, open or closed, and give it a name if it has none.

        Returns why no summary was written, None when one was. A failure of the model raises nothing.

        Raises:
            SessionNotFound: unknown, foreign or purged.
        """
        record = await self._directory.find_record(principal, ref, namespace)
        if self._model is None:
            return "No command is configured for summaries: see [summary]."
        self._pending.add(record.id)
        try:
            async with self._turns.place(record.owner):
                answer = ModelAnswer.of(await self._model(await self._input(principal, record)))
            await self._store(principal, record.id, answer)
        except SessionLimit:
            return "Too many summaries wait."
        except (ValueError, SessionError, SessionFenced, StoreUnavailable) as error:
            reason = self._core.redactor.text(str(error), 300)
            if not self._has_failed:
                self._has_failed = True
                logger.warning("no summary of session %s was written: %s", record.id, reason)
            return reason
        finally:
            self._pending.discard(record.id)
        self._has_failed = False
        return None

    async def _input(self, principal: Principal, record: SessionRecord) -> JSON:
        """Return the input of the model. Nothing in it is a known secret."""
        core, session = self._core, self._directory.get(record.id)
        if session is not None:
            await core.store.flush()
        summaries = await summarize(core.store, record, core.redactor, session)
        kinds = [JournalKind.MESSAGE, JournalKind.CALL]
        entries = await core.store.history(record.id, HistoryFilter(kinds=kinds, limit=MAX_ENTRIES))
        state = await core.store.state(record.id)
        redact = partial(core.redactor.value, room=INPUT_CHARACTERS)
        shown: list[JSON] = []
        room = INPUT_CHARACTERS
        for entry in reversed(entries):
            fields = show(entry)
            room -= len(str(fields))
            if room < 0:
                break
            shown.insert(0, fields)
        return {
            "session_id": record.id,
            "name": None if record.name is None else core.redactor.prose(record.name),
            "entries": shown,
            # A large state takes long.
            "state": {} if state is None else await anyio.to_thread.run_sync(redact, state.value),
            "summary": summaries["summary"],
            "digest": summaries["digest"]["text"],
        }

    async def _store(self, principal: Principal, session_id: str, answer: ModelAnswer) -> None:
        record = await self._directory.find_record(principal, session_id)
        if record.closed_at is not None:
            await self._store_closed(record, answer)
            return
        await self._history.write_summary(principal, session_id, answer.text, answer.topics)
        if record.name is None and answer.name is not None:
            await self._name(principal, session_id, answer.name)

    async def _store_closed(self, record: SessionRecord, answer: ModelAnswer) -> None:
        redact = self._core.redactor.prose
        counts = await self._core.store.journal_counts(record.id)
        summary = SummaryRecord(
            session_id=record.id,
            text=redact(answer.text),
            topics=list(map(redact, answer.topics)),
            updated_at=self._core.clock.now(),
            through_seq=counts.last_seq,
        )
        # No node owns a closed session: the write takes effect unless it was deleted meanwhile.
        await self._core.store.write(Write(record.id, None, record.epoch, summary=summary))

    async def _name(self, principal: Principal, session_id: str, name: str) -> None:
        name = self._core.redactor.prose(name)
        for number in range(1, MAX_NAMES + 1):
            proposal = name if number == 1 else f"{name} {number}"
            try:
                await self._rename_delete.rename(
                    principal, session_id, validate_name(proposal, "name")
                )
            except NameTaken:
                continue
            except InvalidArgument:
                return
            return
