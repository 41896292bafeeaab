"""Tool calls, from a request to its answer.

A call passes six steps: admit, guard against repeats, connect, send, journal, record the outcome. A call to an idle,
connected session does no I/O except the call itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import anyio

from ..attribution import LAST_WORDS
from ..errors import (
    CallTimedOut,
    CallWithdrawn,
    ConnectionLost,
    NotAllowed,
    OutcomeUnknown,
    PendingLogin,
    ServiceNotBound,
    ServiceUnavailable,
    SessionClosed,
    SessionError,
    StoreUnavailable,
)
from ..journal.entries import status_of
from ..json_codec import JSON
from ..live.binding import Binding
from ..live.connection import LiveConnection
from ..live.session import LiveSession, logged_session
from ..metrics.spans import SPANS
from ..registry import Registry
from ..repeats import may_repeat
from ..services import Answering, CallContext, RequestSender, ToolResult
from .approval import Approvals
from .deadline import (
    DeadlineContext,
    EndedWithSession,
    WaitProgress,
    end_error,
    end_with_session,
    enforce_deadline,
)
from .hand_over import OPEN_SECONDS
from .idempotency import (
    CallReceipts,
    HandedOverReceipts,
    IdempotencyGuard,
    Receipts,
)
from .login_wait import log_in
from .notices import (
    CallDeferred,
    Delivery,
    ServiceNotes,
    accepts_notice,
    shows_content,
    take_notices,
)
from .receipt_memory import ReceiptMemories
from .receipts import Operation, digest_of, validate_operation_id
from .request import Call, CallAnswer, Request

logger = logging.getLogger("statehold.sessions")

RECORD_SECONDS: Final = 1.0
"""Seconds that the first answer over a new connection may wait until the connection is recorded."""

_UNFINISHED: Final = SessionClosed("unfinished")


class Router:
    """Runs the calls of one registry. Calls run concurrently; between them it keeps receipts only."""

    def __init__(
        self,
        registry: Registry,
        notes: ServiceNotes | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        self._registry = registry
        self._notes = notes or ServiceNotes()
        self._core = registry.core
        self._approvals = approvals or Approvals(registry.core)
        self.guard = IdempotencyGuard(registry.running_operations)
        self._memories = ReceiptMemories(self._core)
        """The receipts that are not stored."""

    async def call(self, request: Request, context: CallContext) -> CallAnswer:
        """Run one tool call in a session and return its answer.

        Cancelling the caller cancels the call upstream.

        Raises:
            SessionError: the call had no result; the code says why.
            RequestRefused: the server answered with a JSON-RPC error.
        """
        registry = self._registry
        session = registry.directory.ready(request.principal, request.session)
        if session is None:
            session = await registry.ready(request.principal, request.session, request.namespace)
        # No await between this check and begin(): the session cannot change in between.
        waiting = WaitProgress(context, request.reported_seconds)
        call = Call(request, session, _binding(session, request.service), context, waiting)
        registry.quota.admit_call(session.record.owner)
        registry.admission.admit(session, request.service, request.tool, request.sharee)
        token = logged_session.set(session)
        try:
            if request.acknowledged_operations:
                await self._forget(session, request.acknowledged_operations)
            if request.operation_id is None and request.hand_over is None:
                result = await self._run(call)
            else:
                call.operation, receipts = self._operation(call)
                async with self.guard.once(call.operation, receipts) as recorded_result:
                    call.operation.result = result = recorded_result or await self._run(call)
        except SessionError as error:
            error.session_id = session.id
            if not isinstance(error, CallDeferred):
                self.return_notice(call.delivery)
            raise
        except BaseException:
            self.return_notice(call.delivery)
            raise
        finally:
            logged_session.reset(token)
            registry.admission.release(session, request.sharee)
        # A repeat has the notice of the first answer, which may be lost, and one that is due now.
        if call.has_due_notice:
            self._take_notice(call, result)
        due_notice = None if call.delivery is None else call.delivery.text
        # A question cannot carry a note; the result that follows can.
        note = None
        if not result.input_required:
            principal = request.principal.key
            note = self._notes.take(request.service, principal, request.client, call.spec)
        parts = (result.notice, due_notice, note)
        notice = "\n".join(dict.fromkeys(part for part in parts if part)) or None
        is_first, session.is_unreported = session.is_unreported, False
        accepts = notice is None or accepts_notice(call.spec)
        return CallAnswer(result.payload, session, notice, is_first, accepts, call.delivery)

    def _operation(self, call: Call) -> tuple[Operation, Receipts]:
        """Return the operation of a call with an id, and the receipts to guard it with."""
        request, session = call.request, call.session
        hand_over = request.hand_over
        if hand_over is not None and hand_over.is_ours:
            operation = Operation(session.id, hand_over.operation_id, "", hand_over=hand_over)
            return operation, HandedOverReceipts(self._core, call)
        operation = Operation(
            session.id,
            validate_operation_id(request.operation_id),
            digest_of(request.service, request.tool, request.arguments),
            request.epoch,
            request.is_repeat,
            continues=call.continues,
            hand_over=hand_over,
        )
        if request.epoch is None:
            return operation, CallReceipts(self._core, call)
        return operation, self._memories.of(session)

    async def _forget(self, session: LiveSession, acknowledged_operations: Sequence[str]) -> None:
        """Delete the receipts of results that the caller has acknowledged."""
        memory = self._memories.of(session)
        stored_ids = [
            operation_id
            for operation_id in acknowledged_operations
            if not memory.forget(session.id, operation_id)
        ]
        ended_ids = [
            operation_id
            for operation_id in stored_ids
            if not self.guard.is_running(session.id, operation_id)
        ]
        if ended_ids:
            await session.save(forget=ended_ids)
            session.stored_receipts.clear()

    async def _run(self, call: Call) -> ToolResult:
        """Run a call on the connection of its session, and journal it."""
        started_at = call.started_at = call.waits_since = self._core.clock.now()
        outcome: ToolResult | BaseException = _UNFINISHED
        call.session.activity.begin(call, started_at)
        try:
            if self._approvals.needs_person(call):
                with end_with_session(call.session):
                    obtain = partial(
                        self._approvals.obtain, call, partial(self._write_receipt, call)
                    )
                    wait = call.waiting.run("Waiting for a person to approve the call", obtain)
                    await call.wait_for_person(wait, self._core.clock)
            try:
                try:
                    outcome = await self._send(call)
                except ServiceUnavailable as unavailable:
                    login = unavailable.login
                    if login is None:
                        raise
                    wait = self._log_in(call, login)
                    if not await call.wait_for_person(wait, self._core.clock):
                        raise
                    outcome = await self._send(call)
            except (ConnectionLost, OutcomeUnknown) as lost:
                if not _may_send_again(call, lost):
                    raise
                call.waiting = WaitProgress(call.context, call.waiting.highest_progress)
                outcome = await self._send(call)
            # Taken before the receipt is written, which keeps the notice for repeats.
            if call.has_due_notice:
                self._take_notice(call, outcome)
            if call.delivery is not None:
                outcome.notice = call.delivery.text
            return outcome
        except EndedWithSession:
            outcome = end_error(call.session)
            raise outcome from None
        except BaseException as error:
            outcome = error
            raise
        finally:
            call.measure(self._core, status_of(outcome))
            if (hand_over := call.request.hand_over) is not None:
                await hand_over.end()
                if hand_over.is_taken or call.upstream is not None:
                    with anyio.CancelScope(shield=True):
                        await call.session.tasks.end(hand_over.operation_id)
            if call.operation is None or not call.operation.is_stored:
                await self._journal(call, started_at, outcome)

    async def _send(self, call: Call) -> ToolResult:
        """Send a call on the connection of its session; open the connection first if necessary."""
        session, binding, request = call.session, call.binding, call.request
        live = binding.live
        if live is None or not live.usable:
            activity = f"Opening {request.service}"
            can_wait = call.context.options.can_return_input_required
            session.has_older_caller = not can_wait and request.hand_over is None
            with end_with_session(session):
                connect = partial(self._registry.connector.connect_for_call, session, binding)
                with SPANS.step("connect", request.service):
                    live = await call.waiting.run(activity, connect)
        seconds = binding.service.call_seconds
        policy, operation_id = self._core.policy, call.stored_operation_id
        is_recorded = policy.journal_calls or operation_id is not None
        try:
            origin = live.questions, session, request.tool
            with enforce_deadline(
                seconds,
                call.context,
                call.waiting,
                origin,
                operation_id,
                wants_facts=is_recorded and policy.journal_facts,
                session=session,
            ) as context:
                if call.operation is not None and call.operation.origin is None:
                    context.note_upstream_task = partial(_note_upstream_task, call)
                if request.hand_over is not None:
                    # Also while it waits for a slot; the next process finds that it was not sent.
                    hand_over = partial(self._hand_over, call, live, context)
                    if request.hand_over.is_taken:  # and the call is sent again
                        await hand_over()
                    request.hand_over.offer(hand_over)
                slot = await _take_slot(call, live)
                try:
                    if call.has_due_notice:
                        self._refuse_lost_notice(call)
                    if self._approvals.needs_person(call):
                        await self._approvals.use(call)
                        context.is_approved = True
                    self._core.node.require_lease()
                    call.record_sent(True)
                    # A call that is sent once more has not waited while it ran first.
                    call.sent_at = call.sent_at or self._core.clock.now()
                    try:
                        with SPANS.call(request.service, request.tool, session.id):
                            result = await live.connection.call(
                                request.tool, request.arguments, context
                            )
                    finally:
                        # Also after a failure: the call may have had effects.
                        self._registry.snapshots.record_call(session, binding, live)
                        call.ended_at = live.called_at
                finally:
                    live.slots.release(slot)
        except SessionError as error:
            if error.did_not_run:
                call.record_sent(False)
            raise
        except TimeoutError:
            if request.hand_over is not None and request.hand_over.is_taken:
                seconds = OPEN_SECONDS
            if call.was_sent:
                raise _timed_out(session, binding, request.tool, seconds) from None
            raise CallTimedOut(
                f"{request.tool} was not run: the calls before it took longer than {seconds:g} seconds.",
                session_id=session.id,
            ) from None
        if not live.opening_recorded.is_set():
            # Wait until the generation is stored; otherwise a crash hides the loss.
            with SPANS.step("store", request.service), end_with_session(session):
                with anyio.move_on_after(RECORD_SECONDS):
                    await live.opening_recorded.wait()
        if not self._core.node.may_act():
            # Another node may own the session by now, without the effects of this call.
            raise OutcomeUnknown(
                "The server lost its database during the call.", session_id=session.id
            )
        live.calls += 1
        binding.losses = 0
        return result

    async def _log_in(self, call: Call, login: PendingLogin) -> bool:
        """Wait until the person of a caller is logged in at the service of a call; see log_in()."""
        service, hand_over = call.request.service, call.request.hand_over
        record = partial(self._write_receipt, call)
        with end_with_session(call.session):
            return await log_in(call.context, service, login, hand_over, record)

    async def _write_receipt(self, call: Call) -> None:
        """Write the receipt of a call that is handed over, unless it has one."""
        if call.operation is not None and call.operation.hand_over is not None:
            await CallReceipts(self._core, call).tell(call.operation)
            call.operation.hand_over.began_at = call.started_at

    async def _hand_over(self, call: Call, live: LiveConnection, context: DeadlineContext) -> None:
        """Write the receipt of a running call, unless it has one, and let the call run on without its caller.

        Raises:
            SessionError, StoreUnavailable: it cannot be written, so the caller has to wait.
        """
        # Otherwise the next process would not know the connection over which the answer comes.
        with anyio.move_on_after(RECORD_SECONDS):
            await live.opening_recorded.wait()
        if not live.opening_recorded.is_set():
            raise StoreUnavailable("the connection is not recorded yet")
        await self._write_receipt(call)
        if call.operation is not None and call.operation.hand_over is not None:
            await call.session.tasks.begin(call.operation.id, live, OPEN_SECONDS)
        context.hand_over()

    def return_notice(self, delivery: Delivery | None) -> None:
        """Make the notice of an answer that was not delivered due again. A second call does nothing."""
        if delivery is not None and delivery.revert():
            self._save_notice(delivery)

    def _take_notice(self, call: Call, result: ToolResult | None) -> None:
        # A question cannot carry it; the result that follows can.
        if call.delivery is None and (result is None or not result.input_required):
            call.delivery = take_notices(call.session, call.binding)
            if call.delivery is not None:
                self._save_notice(call.delivery)

    def _save_notice(self, delivery: Delivery) -> None:
        self._registry.connector.save_notices_soon(delivery.session, delivery.bindings)

    def _refuse_lost_notice(self, call: Call) -> None:
        """Refuse the call with a due notice when its client would not show the notice in the result."""
        if shows_content(call.request.client) or accepts_notice(call.spec):
            return
        self._take_notice(call, None)
        if call.delivery is not None:
            raise CallDeferred(call.delivery)

    async def _journal(
        self, call: Call, started_at: float, outcome: ToolResult | BaseException
    ) -> None:
        core = self._core
        if core.policy.journal_calls:
            ended_at = call.ended_at or core.clock.now()
            try:
                entry = call.entry(core, started_at, ended_at, outcome)
                owner, quota = call.session.record.owner, self._registry.quota
                if not quota.room(owner):
                    entry.withhold()
                if not entry.is_small():
                    await core.redactions.redact(entry, owner)
                quota.count(owner, entry.approximate_bytes())
                entry.seq = call.session.next_seq()
                core.store.append_call(entry, owner)
            except Exception:
                # The call ran: after an error now the caller would run it again.
                logger.exception("a call of %.100s was not journalled", call.request.tool)
        if core.policy.journal_sync:
            try:
                with anyio.CancelScope(shield=True):
                    await core.store.flush()
            except StoreUnavailable as error:
                # The call ran: after an error now the caller would run it again.
                logger.error("a call was not journalled before its reply: %s", error)

    async def request_service(
        self, request: Request, method: str, params: JSON, context: CallContext
    ) -> tuple[JSON, LiveSession]:
        """Send an MCP request other than tools/call to a service of a session (resources, prompts).

        Raises:
            NotAllowed: the service answers tool calls only.
        """
        registry = self._registry
        session = await registry.ready(request.principal, request.session, request.namespace)
        binding = _binding(session, request.service)
        registry.admission.admit(session, request.service, method, request.sharee)
        try:
            with end_with_session(session):
                if isinstance(binding.service, Answering):
                    view = session.view(binding.record.generation)
                    read = partial(registry.snapshots.read, session, binding)
                    saved = None if binding.usable else read
                    answer = await binding.service.answer(view, method, params, saved)
                    return answer, session
                session.has_older_caller = not context.options.can_return_input_required
                live = await registry.connector.connect_for_call(session, binding)
                connection = live.connection
                if not isinstance(connection, RequestSender):
                    raise NotAllowed(f"{binding.service.name} has neither resources nor prompts.")
                origin, seconds = (live.questions, session, method), binding.service.call_seconds
                self._core.node.require_lease()
                with enforce_deadline(seconds, context, questions=origin) as deadline_context:
                    return await connection.request(method, params, deadline_context), session
        except TimeoutError:
            raise _timed_out(session, binding, method, binding.service.call_seconds) from None
        except EndedWithSession:
            raise end_error(session) from None
        finally:
            registry.admission.release(session, request.sharee)


async def _note_upstream_task(call: Call, task: str) -> None:
    """Keep the id of the upstream's task that runs a call, so that a later process can follow it."""
    call.upstream, operation, hand_over = task, call.operation, call.request.hand_over
    if operation is not None and hand_over is not None:
        call.session.tasks.follow(operation.id)
    async with nullcontext() if hand_over is None else hand_over.turn:
        if operation is not None and operation.start_receipt is not None:
            receipt = operation.start_receipt.model_copy(update={"upstream": task})
            try:
                await call.session.save(receipts=[receipt])
                operation.start_receipt = receipt
            except (SessionError, StoreUnavailable) as error:
                logger.error("a later process cannot follow a task: %s", error)


def _binding(session: LiveSession, service: str) -> Binding:
    binding = session.bindings.get(service)
    if binding is None:
        raise ServiceNotBound(
            f"The session does not use the service {service}.",
            session_id=session.id,
            recovery=f"Call session_bind with this session_id and service={service}.",
        )
    return binding


async def _take_slot(call: Call, live: LiveConnection) -> str:
    """Wait for a slot of the connection; the caller releases it."""
    owner = call.request.sharee or call.session.record.owner
    slot = live.slots.take_free(owner)
    if slot:
        return slot
    with SPANS.step("wait", call.service):
        return await call.waiting.take_slot(live, call.session.id, owner)


def _may_send_again(call: Call, error: ConnectionLost | OutcomeUnknown) -> bool:
    """Whether to send a call once more: it was lost before it was sent, or on the way and may be repeated."""
    if isinstance(error, CallDeferred | CallWithdrawn):
        return False
    tool = {} if call.spec is None else call.spec.definition
    hand_over, operation_id = call.request.hand_over, call.request.operation_id
    has_operation_id = operation_id is not None or (hand_over is not None and hand_over.is_taken)
    if isinstance(error, ConnectionLost):
        return True
    # An approval is for one run.
    return call.used_approval is None and may_repeat(tool, has_operation_id=has_operation_id)


def _timed_out(session: LiveSession, binding: Binding, method: str, seconds: float) -> CallTimedOut:
    words = "" if binding.live is None else binding.live.stray_output
    cause = f"; its server wrote text to stdout that is not MCP{LAST_WORDS}{words}" if words else ""
    return CallTimedOut(
        f"{method} took longer than {seconds:g} seconds and was cancelled{cause}.",
        session_id=session.id,
    )
