"""Requests of 2026-07-28 clients that wait for input: tool calls, prompts, resources.

A 2026-07-28 client cannot be asked while its request runs: the request has to end with an `InputRequiredResult`, and the
client sends it again with the answers (SEP-2322). A legacy upstream asks in the middle of a call and waits. So the call is
parked: it goes on in a task of its own, keeps its session busy, and the next request of the same caller takes it up again.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from ...sessions.errors import InvalidArgument, NotAllowed
from ...sessions.json_codec import JSON
from ..sdk.access import RequestContext
from ..sdk.caller import ANSWER_SECONDS, Caller

STATE = "park:"

Work = Callable[[Caller], Awaitable[JSON]]
SessionWork = Callable[[str, Caller], Awaitable[JSON]]
"""Work in a session, given by id or name, for a caller."""


@dataclass(eq=False)
class WaitingCall:
    """One call that may outlive the request that started it."""

    owner: str
    what: str
    token: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    asked: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    questions: dict[str, JSON] = field(default_factory=dict[str, JSON])
    answers: dict[str, JSON] = field(default_factory=dict[str, JSON])
    answered: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    caller: Caller | None = None
    result: JSON | None = None
    error: BaseException | None = None

    async def ask(self, method: str, params: JSON) -> JSON:
        """Put a question to the caller: it ends the current request and is answered by the next one."""
        key = f"q{len(self.answered) + 1}"
        answered = self.answered[key] = anyio.Event()
        self.questions[key] = {"method": method, "params": params}
        self.asked.set()
        await answered.wait()
        return self.answers.pop(key)


class InputRequiredCalls:
    """The parked calls of one process. `spawn` starts work that lives until the process ends or the call is settled.

    A call is cancelled when it waited for its answers for `ttl` seconds. They do not count as the call's own time.
    """

    def __init__(self, spawn: Callable[..., None], *, ttl: float = ANSWER_SECONDS) -> None:
        self._spawn = spawn
        self._ttl = ttl
        self._parked: dict[str, WaitingCall] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def abandon(self) -> None:
        """Cancel every call that waits for input. Called when the client that could give it is gone."""
        for call in list(self._parked.values()):
            call.scope.cancel()

    async def run(
        self, ctx: RequestContext, params: dict[str, Any], owner: str, what: str, work: Work
    ) -> JSON:
        """Run `work` for a caller that may be asked; return its result or an `InputRequiredResult`.

        `what` identifies the requested work: only a request with the same value, of the same owner, can continue the call.
        Cancelling this request cancels the call, as long as it is not parked.
        """
        call = WaitingCall(owner, what, STATE + secrets.token_urlsafe(24))
        call.caller = Caller(ctx, params, ask=call.ask)
        self._spawn(self._work, call, work)
        return await self._next(call)

    def find(self, state: str, owner: str, what: str) -> WaitingCall:
        """Return the parked call that a request continues.

        Raises:
            InvalidArgument: this caller has no such call, or has it no longer.
        """
        call = self._parked.get(state)
        if call is None or call.owner != owner or call.what != what:
            raise InvalidArgument(
                "The call that asked for this input is gone.",
                recovery="Look at its effect, then send it again without requestState.",
            )
        return call

    async def resume(self, ctx: RequestContext, params: dict[str, Any], call: WaitingCall) -> JSON:
        """Take up a parked call with the answers of its caller.

        Raises:
            InvalidArgument: the answers are malformed, and the call goes on waiting.
        """
        assert call.caller is not None
        answers = _answers(params.get("inputResponses"), call.questions)
        del self._parked[call.token]
        call.caller.bind(ctx, params)
        for key in list(call.questions):
            if key in answers:
                del call.questions[key]
                call.answers[key] = answers[key]
                call.answered[key].set()
        if not call.questions:
            call.asked = anyio.Event()
        return await self._next(call)

    async def _work(self, call: WaitingCall, work: Work) -> None:
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
            self._parked.pop(call.token, None)
            call.done.set()

    async def _next(self, call: WaitingCall) -> JSON:
        """Wait for the result or the next question, whichever comes first."""
        try:
            async with anyio.create_task_group() as race:
                race.start_soon(_cancel_when, call.asked, race.cancel_scope)
                await call.done.wait()
                race.cancel_scope.cancel()
        except BaseException:
            call.scope.cancel()
            raise
        if call.done.is_set():
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
        self._parked[call.token] = call
        self._spawn(self._expire, call, call.token)

    async def _expire(self, call: WaitingCall, token: str) -> None:
        with anyio.move_on_after(self._ttl):
            await call.done.wait()
        if self._parked.get(token) is call:
            call.scope.cancel()


def _answers(given: object, questions: Mapping[str, JSON]) -> dict[str, JSON]:
    found = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    sound = given is None or isinstance(given, dict)
    if not sound or any(not isinstance(found.get(key, {}), dict) for key in questions):
        raise InvalidArgument(
            "inputResponses: should be an object with an object for each question.",
            recovery="Send the answers again with the same requestState.",
        )
    return found


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


__all__ = ["STATE", "InputRequiredCalls", "SessionWork", "Work"]
