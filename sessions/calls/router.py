"""One call: admit, connect, send, settle, journal.

A call to an idle, connected session does no I/O except the call itself.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from ..errors import (
    CallDeferred,
    CallTimedOut,
    CallWithdrawn,
    ConnectionLost,
    NotAllowed,
    OutcomeUnknown,
    ServiceNotBound,
    SessionClosed,
    SessionError,
    StoreUnavailable,
)
from ..journal.entries import CallEntry, excerpt
from ..json_codec import JSON
from ..live.connection import LiveConnection
from ..live.session import Binding, Session
from ..registry import Registry
from ..services import Answering, CallContext, CallResult
from .attempts import Attempts
from .deadline import Waiting, limited, until_closed
from .deliveries import Delivery, take
from .notices import accepts_notice
from .operations import Operations
from .request import Answer, Request

logger = logging.getLogger("statehold.sessions")


RECORD_SECONDS: Final = 1.0
"""Seconds that the first answer over a new connection may wait until the connection is recorded."""


class Router:
    """Runs the calls of one registry. Calls run concurrently; the router keeps no state between them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.core.store
        self._node = registry.core.node.id
        self._operations = Operations(registry)
        self._attempts = Attempts(registry.core.policy, registry.core.clock)

    async def call(self, request: Request, ctx: CallContext) -> Answer:
        """Run one tool call in a session and return its result.

        Cancelling the caller cancels the call upstream.

        Raises:
            SessionError: one of the codes of design section 5; the call had no result.
            RequestRefused: the server answered with a JSON-RPC error.
        """
        registry = self._registry
        session = registry.live(request.principal, request.session)
        if session is None:
            session = await registry.ready(request.principal, request.session, request.namespace)
        # No await between this check and begin(): the session cannot change in between.
        binding = session.bindings.get(request.service)
        if binding is None:
            raise ServiceNotBound(
                f"The session does not use the service {request.service}.", session_id=session.id
            )
        registry.admission.begin(session)
        try:
            if request.settled:
                await self._operations.forget(session, request.settled)
            if request.operation_id is None:
                result = await self._journaled(session, binding, request, ctx)
            elif request.epoch is None:
                result = await self._operation(session, binding, request, ctx)
            else:
                work = partial(self._journaled, session, binding, request, ctx)
                result = await self._attempts.run(session, request, ctx, work)
        except BaseException as error:
            if isinstance(error, SessionError):
                error.session_id = session.id
            if not isinstance(error, CallDeferred):
                self.return_notice(request.delivery)
            raise
        finally:
            registry.admission.settle(session)
        told = self._notice(session, binding, request, result)
        accepted = accepts_notice(binding.service.tool(request.tool))
        return Answer(result.payload, session.summary(), told, accepted)

    def return_notice(self, delivery: Delivery | None) -> None:
        """Make the notice of an answer that was not delivered due again. A second call does nothing."""
        if delivery is not None and delivery.revert():
            self._save(delivery)

    def _notice(
        self, session: Session, binding: Binding, request: Request, result: CallResult
    ) -> str | None:
        """Return the notice for a result. A repeat gets the first answer's notice, which may be lost, and one due now."""
        if request.delivery is None:
            self._take(session, binding, request, result)
        due = None if request.delivery is None else request.delivery.text
        return "\n".join(dict.fromkeys(part for part in (result.notice, due) if part)) or None

    def _take(
        self, session: Session, binding: Binding, request: Request, result: CallResult | None
    ) -> None:
        # A question cannot carry it; the result that follows can.
        if result is None or not result.input_required:
            request.delivery = take(session, binding)
            if request.delivery is not None:
                self._save(request.delivery)

    def _save(self, delivery: Delivery) -> None:
        for binding in delivery.bindings:
            self._registry.connector.save_soon(delivery.session, binding)

    async def forward(
        self, request: Request, method: str, params: JSON, ctx: CallContext
    ) -> tuple[JSON, Session]:
        """Forward an MCP request other than tools/call to a service of a session (resources, prompts).

        Raises:
            NotAllowed: the service answers tool calls only.
        """
        registry = self._registry
        session = await registry.ready(request.principal, request.session, request.namespace)
        binding = session.bindings.get(request.service)
        if binding is None:
            raise ServiceNotBound(
                f"The session does not use the service {request.service}.", session_id=session.id
            )
        registry.admission.begin(session)
        try:
            work = self._forwarded(session, binding, method, params, ctx)
            return await until_closed(session, work), session
        finally:
            registry.admission.settle(session)

    async def _forwarded(
        self, session: Session, binding: Binding, method: str, params: JSON, ctx: CallContext
    ) -> JSON:
        if isinstance(binding.service, Answering):
            view = session.view(binding.record.generation)
            return await binding.service.answer(view, method, params)
        live = await self._registry.connector.connect(session, binding)
        send = getattr(live.connection, "request", None)
        if send is None:
            raise NotAllowed(f"{binding.service.name} has neither resources nor prompts.")
        try:
            asked = (live.questions, session, method)
            with limited(binding.service.call_seconds, ctx, questions=asked) as timed:
                return await send(method, params, timed)
        except TimeoutError:
            raise self._timed_out(session, binding, method) from None

    async def _operation(
        self, session: Session, binding: Binding, request: Request, ctx: CallContext
    ) -> CallResult:
        async def work() -> CallResult:
            return await self._run(session, binding, request, ctx)

        return await self._operations.run(session, binding, request, ctx, work)

    async def _run(
        self, session: Session, binding: Binding, request: Request, ctx: CallContext
    ) -> CallResult:
        result = await until_closed(session, self._sent(session, binding, request, ctx))
        # Taken before the receipt is written, which keeps the notice for repeats.
        self._take(session, binding, request, result)
        if request.delivery is not None:
            result.notice = request.delivery.text
        return result

    async def _journaled(
        self, session: Session, binding: Binding, request: Request, ctx: CallContext
    ) -> CallResult:
        started = self._registry.core.clock.now()
        outcome: CallResult | BaseException = SessionClosed("unfinished")
        try:
            outcome = await self._run(session, binding, request, ctx)
            return outcome
        except BaseException as error:
            outcome = error
            raise
        finally:
            if self._registry.core.policy.journal_calls:
                self._append(session, binding, request, started, outcome)
            if self._registry.core.policy.journal_sync:
                await self._flush()

    def _append(
        self,
        session: Session,
        binding: Binding,
        request: Request,
        started: float,
        outcome: CallResult | BaseException,
    ) -> None:
        policy = self._registry.core.policy
        try:
            entry = CallEntry(
                session.id,
                self._node,
                session.record.epoch,
                session.next_seq(),
                request.service,
                request.tool,
                request.arguments,
                started,
                request.ended_at or self._registry.core.clock.now(),
                binding.record.generation,
                excerpt(outcome) if isinstance(outcome, CallResult) else outcome,
                request.operation_id,
                request.run,
                policy.journal_bytes,
                self._registry.core.redactor,
                spec=binding.service.tool(request.tool),
            )
            self._store.append_call(entry)
        except Exception:
            # The call ran: after an error now the caller would run it again.
            logger.exception("a call of %.100s was not journalled", request.tool)

    async def _flush(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._store.flush()
        except StoreUnavailable as error:
            # The call ran: after an error now the caller would run it again.
            logger.error("a call was not journalled before its reply: %s", error)

    async def _sent(
        self, session: Session, binding: Binding, request: Request, ctx: CallContext
    ) -> CallResult:
        waiting = Waiting(ctx, request.waited)
        try:
            return await self._send(session, binding, request, ctx, waiting)
        except CallDeferred:
            raise
        except ConnectionLost:
            # Nothing was sent, so sending it over the next connection repeats nothing.
            request.sent, request.ended_at = False, None
        except CallWithdrawn:
            raise
        except OutcomeUnknown:
            spec = binding.service.tool(request.tool)
            if request.operation_id is not None or spec is None or not spec.repeatable:
                raise
        waiting = Waiting(ctx, waiting.farthest)
        try:
            return await self._send(session, binding, request, ctx, waiting)
        except ConnectionLost:
            request.sent, request.ended_at = False, None
            raise

    async def _send(
        self,
        session: Session,
        binding: Binding,
        request: Request,
        ctx: CallContext,
        waiting: Waiting,
    ) -> CallResult:
        live = binding.live
        if live is None or not live.usable:
            live = await waiting.during(
                f"Opening {request.service}", partial(self._connected, session, binding)
            )
        try:
            asked = (live.questions, session, request.tool)
            with limited(binding.service.call_seconds, ctx, waiting, asked) as timed:
                await self._turn(session, live, waiting)
                try:
                    self._defer(session, binding, request)
                    request.sent = True
                    try:
                        result = await live.connection.call(request.tool, request.arguments, timed)
                    finally:
                        # Also after a failure: the call may have had effects.
                        self._registry.snapshots.called(session, binding, live)
                        request.ended_at = live.called_at
                finally:
                    live.slots.release()
        except TimeoutError:
            if not request.sent:
                raise CallTimedOut(
                    f"{request.tool} was not run: the calls before it took longer than "
                    f"{binding.service.call_seconds:g} seconds.",
                    session_id=session.id,
                ) from None
            raise self._timed_out(session, binding, request.tool) from None
        if not live.recorded.is_set():
            # Wait until the generation is stored; otherwise a crash hides the loss.
            with anyio.move_on_after(RECORD_SECONDS):
                await live.recorded.wait()
        live.calls += 1
        binding.losses = 0
        return result

    def _defer(self, session: Session, binding: Binding, request: Request) -> None:
        """Refuse the call with a due note when its result could not carry the note to every client."""
        due = session.notice is not None or binding.notice is not None
        if not due or accepts_notice(binding.service.tool(request.tool)):
            return
        self._take(session, binding, request, None)
        if request.delivery is not None:
            raise CallDeferred(request.delivery.text, session_id=session.id)

    async def _connected(self, session: Session, binding: Binding) -> LiveConnection:
        await self._registry.access.recovered(session)
        return await self._registry.connector.connect(session, binding)

    async def _turn(self, session: Session, live: LiveConnection, waiting: Waiting) -> None:
        """Wait for a slot of the connection; the caller releases it."""
        has_one = False

        async def acquire() -> None:
            nonlocal has_one
            await live.slots.acquire()
            has_one = True

        try:
            live.slots.acquire_nowait()
        except anyio.WouldBlock:
            try:
                await waiting.behind(
                    lambda: live.questions.describe(session.id) if live.parked else None, acquire
                )
            except BaseException:
                if has_one:
                    live.slots.release()
                raise

    def _timed_out(self, session: Session, binding: Binding, what: str) -> CallTimedOut:
        return CallTimedOut(
            f"{what} took longer than {binding.service.call_seconds:g} seconds and was cancelled.",
            session_id=session.id,
        )


__all__ = ["Router"]
