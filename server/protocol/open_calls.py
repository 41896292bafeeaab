"""Calls that may outlive the request that began them: parked ones, and those that became tasks.

A 2026-07-28 client cannot be asked while its request runs. If it declares tasks (SEP-2663), a tool call that asks, or that
takes longer than GRACE_SECONDS, is handed over: its request ends with a task, and the call goes on as an operation in the
store. With `server.hand_over`, other clients get the error `still_running` in place of a task. Otherwise the request ends
with an `InputRequiredResult`, and the client sends it again with the answers (SEP-2322): the call is parked, keeps its
session busy, and waits for them in its own task.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

import anyio

from ...access.audit.recorder import OpenRequest
from ...sessions.calls.hand_over import KEPT_SECONDS, OPEN_SECONDS, HandOver
from ...sessions.calls.login_wait import log_in
from ...sessions.calls.open_work import OpenWork
from ...sessions.calls.task_records import task_id
from ...sessions.errors import (
    InvalidArgument,
    NotAllowed,
    OwnedByAnotherNode,
    SessionError,
    StillRunning,
)
from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ...sessions.services import ToolSpec
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import (
    ANSWER_SECONDS,
    PARKED_STATE,
    Caller,
    OwnMeta,
    declares_tasks,
    is_modern,
    may_ask,
)
from .error_translation import translate_errors
from .request_checks import LoginMissing, Requester, named_session, parked_call_state
from .results import outcome_of

GRACE_SECONDS: Final = 2.0
"""Seconds that a request waits for the end of its call before that becomes a task."""
_POLL: Final = ((4.0, 250), (30.0, 1000))
"""The milliseconds between polls of a task that runs for less than these seconds; LONGEST_POLL_MS later."""
LONGEST_POLL_MS: Final = 5000

Work = Callable[[Caller], Awaitable[JSON]]
SessionWork = Callable[[str, Caller], Awaitable[JSON]]
"""Work in a session, given by id or name, for a caller."""


@dataclass(eq=False, kw_only=True)
class OpenCall(OpenWork):
    """One call that may outlive its request. It lives until its work ends; the result is then answered or recorded."""

    owner: str
    """The principal and the session that it belongs to; see owner_of()."""
    principal: str
    """The key of its caller, who may be another one than the owner of the session."""
    session: str
    work_key: str
    client: object
    """The connection of the client, as the lifespan state that it is served with."""
    hand_over: HandOver | None = None
    """Set if the call may be handed over."""
    grace: float = 0.0
    """Seconds that its request waits before that."""
    has_tasks: bool = False
    """Whether its client declares tasks, and takes its questions from one."""
    token: str = ""
    """The `requestState` under which it is parked."""
    caller: OpenCaller | None = None
    record: OpenRequest | None = None
    """The entry of its last request in the audit log, which gets the end of a task."""
    result: JSON | None = None
    error: BaseException | None = None

    @property
    def is_task(self) -> bool:
        return self.hand_over is not None and self.hand_over.is_taken

    @property
    def task_id(self) -> str:
        assert self.hand_over is not None
        return task_id(self.session, self.hand_over.operation_id)

    def describe(self) -> JSON:
        """Return the task of a call that was handed over, as `tasks/get` shows it while the call runs."""
        assert self.hand_over is not None
        seconds = OPEN_SECONDS + KEPT_SECONDS if self.hand_over.expires else None
        return describe_work(self, self.task_id, self.hand_over.began_at, seconds)


class OpenCaller(Caller):
    """The caller of an open call. Once the call is a task, it hears of the call through that only (SEP-2663)."""

    def __init__(self, ctx: RequestContext, params: Mapping[str, Any], call: OpenCall) -> None:
        self._call = call
        self.hand_over = call.hand_over
        super().__init__(ctx, params, ask=call.ask)

    @property
    def reachable(self) -> bool:
        return self._call.is_task or super().reachable

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if not self._call.is_task:
            await super().progress(progress, total, message)
        self._call.note(progress, total, message)

    async def ask(self, method: str, params: JSON) -> JSON:
        if self.modern or not self._call.is_task:
            return await super().ask(method, params)
        # A question of 2025-11-25 goes with the request, which is over. A person can answer it by a command.
        if method != "elicitation/create":
            raise NotAllowed(f"The caller cannot answer {method} any more.")
        return await self._call.ask(method, params)

    async def log(self, params: JSON) -> None:
        if not self._call.is_task:
            await super().log(params)


class OpenCalls:
    """The open calls of one process.

    A parked call that waits for answers longer than `ttl` seconds is cancelled; the wait does not count towards its time
    limit. A task may run OPEN_SECONDS, with its questions. Both end with the process; a task's receipt remains.
    """

    def __init__(
        self, gateway: Gateway, requester: Requester, *, ttl: float = ANSWER_SECONDS
    ) -> None:
        self._gateway = gateway
        self._requester = requester
        self._spawn = gateway.registry.spawn
        self._now = gateway.registry.core.clock.now
        self._ttl = ttl
        self._parked_calls: dict[str, OpenCall] = {}
        self._tasks: dict[tuple[str, str], OpenCall] = {}
        """The calls that are or may become tasks, by owner and operation id."""
        gateway.registry.revocations.on_look.append(self._end_revoked)

    def __len__(self) -> int:
        return len(self._parked_calls)

    def abandon(self, client: object = None) -> None:
        """Cancel the parked calls of a client that has disconnected, so that no answers can come; without one, all."""
        for call in list(self._parked_calls.values()):
            if client is None or call.client is client:
                call.scope.cancel()

    def _end_revoked(self) -> None:
        """Cancel the calls of revoked principals whose requests have ended, also those in sessions of others."""
        revoked = self._gateway.registry.core.revoked
        for call in [*self._tasks.values(), *self._parked_calls.values()]:
            if call.principal in revoked:
                call.scope.cancel()

    async def run_or_resume(
        self,
        ctx: RequestContext,
        params: JSON,
        principal: Principal,
        session: str,
        work_key: str,
        work: SessionWork,
        *,
        grace: float | None = None,
        record: OpenRequest | None = None,
    ) -> JSON:
        """Run the work of a request, or resume the parked call that it continues.

        The result may ask for input. With `grace`, the call is handed over after so many seconds, and the result is a task.
        `work_key` identifies the work: a request can only continue a call with the same key. Cancelling the request cancels
        the call, unless it is parked or a task.

        Raises:
            StillRunning: the call was handed over, and the client of the request declares no tasks.
            InvalidArgument: the answers for the parked call are malformed.
            MCPError: no call is parked under the `requestState`; SEP-2322 forbids a tool result for that.
        """
        is_asked = is_modern(ctx) and may_ask(ctx)
        state = parked_call_state(params) if is_modern(ctx) else None
        if state is None and not is_asked and grace is None:
            caller = Caller(ctx, params)
            try:
                return await work(session, caller)
            finally:
                caller.close()
        session = await _session_id(self._gateway, principal, session, is_resumed=state is not None)
        owner = owner_of(principal, session)
        if state is not None:
            with translate_errors():
                call = self._find(state, owner, work_key)
            call.record = record
            return await self._resume(ctx, params, call)
        call = OpenCall(
            now=self._now,
            owner=owner,
            principal=self._requester.sharee(ctx) or principal.key,
            session=session,
            work_key=work_key,
            client=ctx.lifespan_context,
            record=record,
        )
        call.on_changed = partial(self._on_changed, call)
        call.has_tasks = declares_tasks(ctx)
        own_meta = OwnMeta.parse(params.get("_meta") or {})
        if grace is not None and own_meta.epoch is None:
            call.grace = grace
            call.hand_over = HandOver(own_meta.operation_id, call, expires=own_meta.hands_over)
            # A repeat joins the call that it repeats.
            self._tasks.setdefault((owner, call.hand_over.operation_id), call)
        call.caller = OpenCaller(ctx, params, call)
        self._spawn(self._run_work, call, partial(work, session))
        return await self._wait_for_outcome(call)

    async def run_after_login(
        self, ctx: RequestContext, params: JSON, missing: LoginMissing, work: Work
    ) -> JSON:
        """Have the person of a caller log in at a service, list its tools, and run the work; or resume that.

        Raises:
            LoginMissing: they do not log in.
        """

        async def run(session: str, caller: Caller) -> JSON:
            if not await log_in(caller, missing.service, missing.awaited):
                raise missing
            await self._gateway.probes.probe_again(missing.service)
            return await work(caller)

        principal, pin = self._requester.principal(ctx), self._requester.pin(ctx)
        if pin is not None:
            session = await self._gateway.pinned_sessions.id_of(principal, pin)
        else:
            session = str(named_session(params) or "")
        work_key = f"tools/call {params['name']}"
        return await self.run_or_resume(ctx, params, principal, session, work_key, run)

    def task(self, owner: str, operation_id: str) -> OpenCall | None:
        """Return a task of this process that runs."""
        call = self._tasks.get((owner, operation_id))
        return call if call is not None and call.is_task else None

    def _find(self, state: str, owner: str, work_key: str) -> OpenCall:
        call = self._parked_calls.get(state)
        if call is None or call.owner != owner or call.work_key != work_key:
            raise InvalidArgument(
                "The call that asked for this input has ended.",
                recovery="Check its effect, then send it again without requestState.",
            )
        return call

    async def _resume(self, ctx: RequestContext, params: JSON, call: OpenCall) -> JSON:
        """Continue a parked call with the answers of its caller; malformed ones leave it parked."""
        assert call.caller is not None
        answers = parse_answers(params.get("inputResponses"), call.questions)
        del self._parked_calls[call.token]
        call.caller.bind(ctx, params)
        call.answer(answers)
        return await self._wait_for_outcome(call)

    async def _run_work(self, call: OpenCall, work: Work) -> None:
        assert call.caller is not None
        try:
            with call.scope:
                call.result = await work(call.caller)
        except Exception as error:
            call.error = error
        finally:
            call.caller.close()
            self._parked_calls.pop(call.token, None)
            if call.hand_over is not None:
                key = call.owner, call.hand_over.operation_id
                if self._tasks.get(key) is call:
                    del self._tasks[key]
                await call.hand_over.end()
            call.end()
        if call.record is not None and call.is_task:
            is_cancelled, end = call.scope.cancelled_caught, call.error or call.result or {}
            call.record.end("cancelled" if is_cancelled else outcome_of(end))

    def _on_changed(self, call: OpenCall) -> None:
        if call.hand_over is not None and call.hand_over.is_taken:
            operations = self._gateway.registry.running_operations
            operations.report(call.session, call.hand_over.operation_id)

    async def _wait_for_outcome(self, call: OpenCall) -> JSON:
        """Wait for the result or the next question, at most the grace of a call that can be handed over."""
        try:
            if call.hand_over is not None:
                with anyio.move_on_after(call.grace):
                    await call.turn.wait()
                is_parked = bool(call.questions) and not call.has_tasks
                if not call.done.is_set() and not is_parked and await call.hand_over.take():
                    assert call.caller is not None
                    call.caller.leave_request()
                    if not call.has_tasks:
                        still = partial(StillRunning, call.task_id, call.question)
                        raise (call.blocked or still)()
                    return {"resultType": "task", **call.describe()}
            await call.turn.wait()
        except BaseException:
            if not call.is_task:
                call.scope.cancel()
            raise
        if call.done.is_set():
            if call.result is None:
                raise call.error or NotAllowed("The call was cancelled while it waited for input.")
            return call.result
        self._park(call)
        return {
            "resultType": "input_required",
            "inputRequests": dict(call.questions),
            "requestState": call.token,
        }

    def _park(self, call: OpenCall) -> None:
        call.token = PARKED_STATE + secrets.token_urlsafe(24)
        self._parked_calls[call.token] = call
        self._spawn(self._cancel_after_ttl, call, call.token)

    async def _cancel_after_ttl(self, call: OpenCall, token: str) -> None:
        with anyio.move_on_after(self._ttl):
            await call.done.wait()
        if self._parked_calls.get(token) is call:
            call.scope.cancel()


def grace_of(spec: ToolSpec | None, caller: Caller) -> float:
    """Return the seconds after which the call of a client with tasks is handed over."""
    return 0.0 if caller.own_meta.hands_over or is_long(spec) else GRACE_SECONDS


def is_long(spec: ToolSpec | None) -> bool:
    """Whether its server says of a tool that its calls may take long, as 2025-11-25 has it."""
    execution: object = None if spec is None else spec.definition.get("execution")
    support: object = (
        cast("JSON", execution).get("taskSupport") if isinstance(execution, dict) else None
    )
    return support in ("optional", "required")


def owner_of(principal: Principal, session: str) -> str:
    """Return the key of a principal and one of its sessions."""
    return f"{principal.key}\n{session}"


def describe_work(work: OpenWork, task: str, began_at: float, seconds: float | None) -> JSON:
    """Return the task of work that has not ended; for `seconds` see task_fields()."""
    status, now = "input_required" if work.questions else "working", work.now()
    fields = task_fields(task, status, began_at, max(work.updated_at, began_at), seconds)
    poll = (ms for seconds, ms in _POLL if now - began_at < seconds)
    fields["pollIntervalMs"] = next(poll, LONGEST_POLL_MS)
    message = work.message if work.blocked is None else str(work.blocked())
    if message is not None:
        fields["statusMessage"] = message
    if work.questions:
        fields["inputRequests"] = dict(work.questions)
    return fields


def task_fields(
    task: str, status: str, began_at: float, updated_at: float, seconds: float | None
) -> JSON:
    """Return the members that every task has (SEP-2663). `seconds` after its beginning it may be deleted; None: never."""
    return {
        "taskId": task,
        "status": status,
        "createdAt": _time(began_at),
        "lastUpdatedAt": _time(updated_at),
        "ttlMs": None if seconds is None else round(seconds * 1000),
    }


def _time(at: float) -> str:
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def parse_answers(input_responses: object, questions: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the answers in `inputResponses`. Raises InvalidArgument if one to a question is no object."""
    answers = cast("dict[str, Any]", input_responses) if isinstance(input_responses, dict) else {}
    is_well_formed = input_responses is None or isinstance(input_responses, dict)
    if not is_well_formed or any(not isinstance(answers.get(key, {}), dict) for key in questions):
        raise InvalidArgument(
            "inputResponses: should be an object with an object for each question.",
            recovery="Send the answers again with the same requestState.",
        )
    return answers


async def _session_id(
    gateway: Gateway, principal: Principal, session: str, *, is_resumed: bool
) -> str:
    """Return the id of a session given by id or name: a parked call belongs to the session, not to its name."""
    registry, namespace = gateway.registry, gateway.config.namespace
    if registry.live(principal, session) is not None:
        return session
    if not is_resumed:
        return (await registry.ready(principal, session, namespace)).id
    try:
        return (await registry.find(principal, session, namespace)).id
    except OwnedByAnotherNode:
        raise
    except SessionError:
        # A missing session has no parked calls: the caller gets the error about the call.
        return session
