"""What outlives a process: connections that it left behind, and the calls that were in flight on them.

Below: the Resumption of each connection, and Service.resume(). The other ends of such connections go on when their process
dies. The next owner of a session resumes them in the same generation, or ends them with their bindings. The answers to the
calls still come over them, and settle their receipts: a repeat gets the result instead of OutcomeUnknown. Until then they
are calls in flight. A call that was certainly not sent frees its operation id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from .calls.deadline import EndedWithSession, end_error, end_with_session
from .calls.hand_over import OPEN_SECONDS
from .calls.open_work import InterruptedCaller, OpenWork
from .calls.receipts import Operation, RunningOperations, close_receipt
from .core import Core
from .errors import ConnectionLost, OutcomeUnknown, SessionError, StoreUnavailable
from .journal.entries import cap_json, excerpt, status_of
from .json_codec import loads
from .live.binding import is_orphan, is_resumable
from .live.connection import LiveConnection
from .live.connector import Connector
from .live.replacement import unreported_notice
from .live.session import Binding, LiveSession
from .records import BindingStatus, HistoryFilter, JournalKind, JournalRecord, ReceiptRecord
from .services import Resumption, ToolResult
from .store.base import RESTARTED
from .transitions.admission import Admission

logger = logging.getLogger("statehold.sessions")

END_SECONDS: Final = 5.0
"""Seconds allowed for resuming a connection that is to be ended."""
ANSWERS = HistoryFilter(kinds=[JournalKind.CALL], statuses=["ok", "error"], limit=1001)
"""The calls whose answers reached their callers: the newest ones, as many as one query returns."""


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """One call with an operation id: its receipt and its entry in the journal, both as they were when it started."""

    receipt: ReceiptRecord
    entry: JournalRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait for the result of an interrupted call, at most some seconds; `slot` is the one that it takes."""

    session: LiveSession
    live: LiveConnection
    call: InterruptedCall
    operation: Operation
    slot: str | None
    seconds: float


class Orphans:
    """The orphans of one registry: connections that outlived their process and were not resumed since."""

    def __init__(
        self,
        core: Core,
        connector: Connector,
        admission: Admission,
        running_operations: RunningOperations,
    ) -> None:
        self._core = core
        self._connector = connector
        self._interrupted_calls = InterruptedCalls(core, admission, running_operations)

    async def resume(self, session: LiveSession) -> None:
        """Resume the orphans of a session, under `session.changing`, and settle the calls that were in flight.

        Those that are gone become lost. One whose other end does not answer stays an orphan: the next call tries again.

        Raises:
            SessionLimit: no place for another live session became free in time.
        """
        orphans = [binding for binding in session.bindings.values() if is_orphan(binding)]
        for binding in orphans:
            if not is_resumable(binding):
                self._connector.record_gone(binding, RESTARTED)
        await self._connector.resume_all(session, filter(is_orphan, orphans))
        # A service that is not configured any more has no binding.
        if orphans or not session.bindings.keys() >= set(session.record.services):
            await self._interrupted_calls.settle(session)

    async def end(self, session: LiveSession, bindings: Iterable[Binding]) -> None:
        """End those of the bindings that are orphans, each within its bound."""
        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                if is_orphan(binding) and is_resumable(binding):
                    tasks.start_soon(self._end, session, binding)

    async def _end(self, session: LiveSession, binding: Binding) -> None:
        live = self._connector.orphan_connection(session, binding, None)
        live.start(self._core.tasks.start)
        with anyio.move_on_after(END_SECONDS), suppress(SessionError):
            await live.wait_until_open()
        await live.aclose()
        binding.update(status=BindingStatus.PAUSED, resume_token=None)


class InterruptedCalls:
    """Settles the calls that were in flight when their process died; it lives as long as the registry."""

    def __init__(
        self, core: Core, admission: Admission, running_operations: RunningOperations
    ) -> None:
        self._core = core
        self._admission = admission
        self._running_operations = running_operations

    async def settle(self, session: LiveSession) -> None:
        """Settle every interrupted call of a session, or wait for its answer in the background.

        Called before the session takes calls. A repeat waits for the answer that the call waits for.
        """
        calls = [
            InterruptedCall(*call) for call in await self._core.store.started_calls(session.id)
        ]
        await self._repeat_notices(session, calls)
        for call in calls:
            receipt, entry = call.receipt, call.entry
            binding = session.bindings.get(entry.service or "")
            live = None if binding is None else binding.live
            resumption = None if live is None else live.resumption
            if binding is None or live is None or resumption is None:
                await self._record_unknown(session, call)
                continue
            was_sent = resumption.was_sent(receipt.operation_id)
            if receipt.upstream is not None or was_sent:
                self._begin(session, live, resumption, call)
            elif was_sent is False and entry.generation == binding.record.generation:
                await self._end_unsent(session, call)
            else:
                # It may have been sent over the connection before this one.
                await self._record_unknown(session, call)
        for binding in session.bindings.values():
            if binding.live is not None and binding.live.resumption is not None:
                binding.live.resumption.ask_again()

    async def _repeat_notices(self, session: LiveSession, calls: Sequence[InterruptedCall]) -> None:
        """Make the notice of a replaced connection due again if only the answer of an interrupted call can have had it."""
        candidates = {
            service: binding
            for service in {call.entry.service or "" for call in calls}
            if (binding := session.bindings.get(service)) is not None
            and binding.notice is None
            and binding.record.generation > 1
        }
        if not candidates:
            return
        answers = await self._core.store.history(session.id, ANSWERS)
        answered = {(entry.service, entry.generation) for entry in answers}
        for service, binding in candidates.items():
            if (service, binding.record.generation) not in answered:
                binding.update(told_generation=binding.record.generation - 1)
                binding.notice = unreported_notice(binding.record, binding.unreported_losses)

    def _begin(
        self,
        session: LiveSession,
        live: LiveConnection,
        resumption: Resumption,
        call: InterruptedCall,
    ) -> None:
        receipt, clock = call.receipt, self._core.clock
        operation = Operation(session.id, receipt.operation_id, receipt.digest)
        operation.start_receipt = receipt
        operation.started.set()
        self._running_operations.begin(operation)
        session.started_entries.add(call.receipt.seq)
        self._admission.count_in(session)
        # They fit into the slots, unless the service has fewer than it had.
        slot = live.slots.take_free(session.record.owner)
        seconds = live.service.call_seconds
        if receipt.expires_at is not None:
            seconds = max(0.0, receipt.started_at + OPEN_SECONDS - clock.now())
            report = partial(self._running_operations.report, session.id, operation.id)
            operation.work = OpenWork(clock.now, report, updated_at=clock.now())
        caller = InterruptedCaller(operation.work)
        if receipt.upstream is not None:
            result = partial(resumption.follow, receipt.upstream, caller)
        else:
            result = resumption.begin(operation.id, caller)
        waiting = Waiting(session, live, call, operation, slot, seconds)
        self._core.tasks.spawn(self._wait, waiting, result)

    async def _wait(self, waiting: Waiting, result: Callable[[], Awaitable[ToolResult]]) -> None:
        """Wait for the result of a call, at most as long as its session, and record it."""
        session, live, operation = waiting.session, waiting.live, waiting.operation
        work = operation.work or OpenWork(self._core.clock.now)
        outcome: ToolResult | BaseException = OutcomeUnknown("The server ended during the call.")
        try:
            if operation.work is not None:
                await session.tasks.begin(operation.id, live, waiting.seconds)
                if waiting.call.receipt.upstream is not None:
                    session.tasks.follow(operation.id)
            with anyio.move_on_after(waiting.seconds), end_with_session(session), work.scope:
                outcome = await result()
            if work.scope.cancelled_caught:
                outcome = anyio.get_cancelled_exc_class()()
        except EndedWithSession:
            outcome = end_error(session)
        except SessionError as error:
            outcome = error
        finally:
            if waiting.slot is not None:
                live.slots.release(waiting.slot)
            try:
                await session.tasks.end(operation.id)
                if not session.is_left:
                    operation.receipt = await self._record(session, waiting.call, outcome)
            finally:
                session.started_entries.discard(waiting.call.receipt.seq)
                self._running_operations.end(operation)
                self._admission.release(session)
                work.end()

    async def _record_unknown(self, session: LiveSession, call: InterruptedCall) -> None:
        await self._record(session, call, OutcomeUnknown("The server ended during the call."))

    async def _record(
        self, session: LiveSession, call: InterruptedCall, outcome: ToolResult | BaseException
    ) -> ReceiptRecord:
        core, now = self._core, self._core.clock.now()
        receipt = close_receipt(call.receipt, outcome, now, core.policy.receipt_bytes)
        is_result = isinstance(outcome, ToolResult)
        limit, redactor = core.policy.journal_bytes, core.redactor
        entry = call.entry.model_copy(
            update={
                "status": status_of(outcome),
                "ended_at": now,
                "result": loads(cap_json(excerpt(outcome).shorten(redactor), limit))
                if is_result
                else None,
                "error": None if is_result else RESTARTED,
            }
        )
        await self._save(session, entry, receipts=[receipt])
        return receipt

    async def _end_unsent(self, session: LiveSession, call: InterruptedCall) -> None:
        """Free the id of a call that was not sent: its repeat may run. One whose id a client was given ends instead."""
        if call.receipt.expires_at is not None:
            await self._record(
                session, call, ConnectionLost("The server ended; the call did not run.")
            )
            return
        now = self._core.clock.now()
        update = {"status": "connection_lost", "ended_at": now, "error": RESTARTED}
        entry = call.entry.model_copy(update=update)
        await self._save(session, entry, forget=[call.receipt.operation_id])

    async def _save(
        self,
        session: LiveSession,
        entry: JournalRecord,
        *,
        receipts: Sequence[ReceiptRecord] = (),
        forget: Sequence[str] = (),
    ) -> None:
        try:
            await session.save(ended_entries=[entry], receipts=receipts, forget=forget)
            session.stored_receipts.clear()
        except (SessionError, StoreUnavailable) as error:
            # Its receipt stays as it was: a repeat gets OutcomeUnknown.
            logger.error("the end of an interrupted call was not recorded: %s", error)
