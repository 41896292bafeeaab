"""Requests of 2026-07-28 clients that wait for input: tool calls, prompts, resources.

A 2026-07-28 client cannot be asked while its request runs: the request has to end with an `InputRequiredResult`, and the
client sends it again with the answers (SEP-2322). A legacy upstream asks in the middle of a call and waits for the answer.
So the call is parked: it goes on in its own task and keeps its session busy until the next request of the client brings the
answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from ...sessions.errors import InvalidArgument, NotAllowed, OwnedByAnotherNode, SessionError
from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import ANSWER_SECONDS, Caller

STATE = "park:"
"""The prefix of the `requestState` of a parked call."""

Work = Callable[[Caller], Awaitable[JSON]]
SessionWork = Callable[[str, Caller], Awaitable[JSON]]
"""Work in a session, given by id or name, for a caller."""


@dataclass(eq=False)
class WaitingCall:
    """One call that may outlive the request that started it. It is parked, under its token, while it waits for input."""

    owner: str
    work_key: str
    token: str
    client: object
    """The connection of the client, as the lifespan state that it is served with."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    question_event: anyio.Event = field(default_factory=anyio.Event)
    done_event: anyio.Event = field(default_factory=anyio.Event)
    questions: dict[str, JSON] = field(default_factory=dict[str, JSON])
    answers: dict[str, JSON] = field(default_factory=dict[str, JSON])
    answer_events: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    caller: Caller | None = None
    result: JSON | None = None
    error: BaseException | None = None

    async def ask(self, method: str, params: JSON) -> JSON:
        """Ask the caller: the question is the result of the current request, and the next request has the answer."""
        key = f"q{len(self.answer_events) + 1}"
        event = self.answer_events[key] = anyio.Event()
        self.questions[key] = {"method": method, "params": params}
        self.question_event.set()
        await event.wait()
        return self.answers.pop(key)


class InputRequiredCalls:
    """The parked calls of one process. `spawn` starts a task that may outlive the request.

    A call that waits for answers longer than `ttl` seconds is cancelled. The wait does not count towards its time limit.
    """

    def __init__(self, spawn: Callable[..., None], *, ttl: float = ANSWER_SECONDS) -> None:
        self._spawn = spawn
        self._ttl = ttl
        self._parked_calls: dict[str, WaitingCall] = {}

    def __len__(self) -> int:
        return len(self._parked_calls)

    def abandon(self, client: object = None) -> None:
        """Cancel the parked calls of a client that has disconnected, so that no answers can come; without one, all."""
        for call in list(self._parked_calls.values()):
            if client is None or call.client is client:
                call.scope.cancel()

    async def run(
        self, ctx: RequestContext, params: dict[str, Any], owner: str, work_key: str, work: Work
    ) -> JSON:
        """Run `work` for a caller that may be asked; return its result or an `InputRequiredResult`.

        `work_key` identifies the requested work: only a request of the same owner with the same key can continue the call.
        Cancelling this request cancels the call, as long as it is not parked.
        """
        call = WaitingCall(owner, work_key, STATE + secrets.token_urlsafe(24), ctx.lifespan_context)
        call.caller = Caller(ctx, params, ask=call.ask)
        self._spawn(self._run_work, call, work)
        return await self._wait_for_outcome(call)

    def find(self, state: str, owner: str, work_key: str) -> WaitingCall:
        """Return the parked call that a request continues.

        Raises:
            InvalidArgument: this caller has no parked call with this state; it may have ended.
        """
        call = self._parked_calls.get(state)
        if call is None or call.owner != owner or call.work_key != work_key:
            raise InvalidArgument(
                "The call that asked for this input has ended.",
                recovery="Check its effect, then send it again without requestState.",
            )
        return call

    async def resume(self, ctx: RequestContext, params: dict[str, Any], call: WaitingCall) -> JSON:
        """Continue a parked call with the answers of its caller.

        Raises:
            InvalidArgument: the answers are malformed; the call stays parked.
        """
        assert call.caller is not None
        answers = _parse_answers(params.get("inputResponses"), call.questions)
        del self._parked_calls[call.token]
        call.caller.bind(ctx, params)
        for key in list(call.questions):
            if key in answers:
                del call.questions[key]
                call.answers[key] = answers[key]
                call.answer_events[key].set()
        if not call.questions:
            call.question_event = anyio.Event()
        return await self._wait_for_outcome(call)

    async def _run_work(self, call: WaitingCall, work: Work) -> None:
        assert call.caller is not None
        call.error = NotAllowed("The call was cancelled while it waited for input.")
        try:
            with call.scope:
                call.result = await work(call.caller)
                call.error = None
        except Exception as error:
            call.error = error
        finally:
            call.caller.close()
            self._parked_calls.pop(call.token, None)
            call.done_event.set()

    async def _wait_for_outcome(self, call: WaitingCall) -> JSON:
        """Wait for the result or the next question, whichever comes first."""
        try:
            async with anyio.create_task_group() as race:
                race.start_soon(_cancel_when, call.question_event, race.cancel_scope)
                await call.done_event.wait()
                race.cancel_scope.cancel()
        except BaseException:
            call.scope.cancel()
            raise
        if call.done_event.is_set():
            if call.error is not None:
                raise call.error
            assert call.result is not None
            return call.result
        self._park(call)
        return {
            "resultType": "input_required",
            "inputRequests": dict(call.questions),
            "requestState": call.token,
        }

    def _park(self, call: WaitingCall) -> None:
        call.token = STATE + secrets.token_urlsafe(24)
        self._parked_calls[call.token] = call
        self._spawn(self._cancel_after_ttl, call, call.token)

    async def _cancel_after_ttl(self, call: WaitingCall, token: str) -> None:
        with anyio.move_on_after(self._ttl):
            await call.done_event.wait()
        if self._parked_calls.get(token) is call:
            call.scope.cancel()


def _parse_answers(input_responses: object, questions: Mapping[str, JSON]) -> dict[str, JSON]:
    answers = cast("dict[str, Any]", input_responses) if isinstance(input_responses, dict) else {}
    is_well_formed = input_responses is None or isinstance(input_responses, dict)
    if not is_well_formed or any(not isinstance(answers.get(key, {}), dict) for key in questions):
        raise InvalidArgument(
            "inputResponses: should be an object with an object for each question.",
            recovery="Send the answers again with the same requestState.",
        )
    return answers


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def session_id_of(
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
