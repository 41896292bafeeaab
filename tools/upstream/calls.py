"""The requests in flight on one connection: their notes to the caller, and the assignment of questions to calls.

A legacy upstream that asks for input does not say for which call. So calls of tools that have asked take turns, and a
question is only put to a caller when it can belong to no other call. A call with an open question holds up no other call,
and a call whose client is gone keeps no other caller from being asked.
"""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...sessions.errors import NotAllowed
from ...sessions.json_codec import JSON
from ...sessions.services import CallContext

logger = logging.getLogger("statehold.upstream")

MESSAGES_KEPT: Final = 512
"""Notes that may wait for a caller who is slow to take them; then the oldest are dropped."""

FLUSH_SECONDS: Final = 5.0
ATTRIBUTION_SECONDS: Final = 10.0
"""Seconds that a question may wait until it is clear to which call it belongs."""
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks of a waiting question for callers that are gone, which no event announces."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

Message = Callable[[], Awaitable[None]]
Spawn = Callable[[contextvars.Context, Callable[[], Awaitable[None]]], bool]


class UpstreamCall:
    """One request in flight. It lives from entering `Calls` until leaving it."""

    __slots__ = (
        "_context",
        "_idle",
        "_is_delivering",
        "_messages",
        "_spawn",
        "ctx",
        "number",
        "questions",
        "tool",
    )

    def __init__(self, number: int, tool: str, ctx: CallContext, spawn: Spawn) -> None:
        self.number = number
        self.tool = tool
        self.ctx = ctx
        self.questions: set[anyio.CancelScope] = set()
        self._spawn = spawn
        self._messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._is_delivering = False
        self._idle: anyio.Event | None = None
        self._context = contextvars.copy_context()

    def progress(self, params: JSON) -> None:
        progress, total, message = (
            params.get("progress"),
            params.get("total"),
            params.get("message"),
        )
        if not isinstance(progress, int | float) or isinstance(progress, bool):
            return
        ctx = self.ctx
        valid_total = (
            total if isinstance(total, int | float) and not isinstance(total, bool) else None
        )
        text = message if isinstance(message, str) else None
        self._enqueue(lambda: ctx.progress(progress, valid_total, text))

    def log(self, params: JSON) -> None:
        ctx = self.ctx
        if reaches(params.get("level"), ctx.log_level):
            self._enqueue(lambda: ctx.log(params))

    def _enqueue(self, message: Message) -> None:
        self._messages.append(message)
        if not self._is_delivering:
            self._idle = anyio.Event()
            self._is_delivering = self._spawn(self._context, self._deliver)

    async def _deliver(self) -> None:
        assert self._idle is not None
        try:
            while self._messages:
                await self._messages.popleft()()
        except Exception:
            logger.exception("a caller could not be told of its call")
        finally:
            self._is_delivering = False
            self._idle.set()

    async def flush(self) -> None:
        """Wait, within a bound, until the caller has the notes that came before the answer."""
        if self._is_delivering and self._idle is not None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._idle.wait()
        self._messages.clear()


def reaches(level: object, threshold: str | None) -> bool:
    """Whether a message of a level reaches a caller who wants `wanted` and above."""
    if threshold not in LEVELS:
        return False
    return level not in LEVELS or LEVELS.index(str(level)) >= LEVELS.index(threshold)


class ActiveCalls:
    """The calls in flight on one connection, and the turn of those that may ask.

    Calls of a tool that has asked once take turns, so that a question can be assigned to one of them. A call gives its turn
    away while its question is open and takes it again before the answer goes on; it waits for a turn `ATTRIBUTION_SECONDS`
    at most. Other calls never wait. Over a `shared` connection a question is only put to a call that is alone.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._is_shared = shared
        self._active: dict[int, UpstreamCall] = {}
        self._asking_tools: set[str] = set()
        self._holder: UpstreamCall | None = None
        self._waiting: deque[tuple[UpstreamCall, anyio.Event]] = deque()
        self._asking = 0
        self._change = anyio.Event()

    def __len__(self) -> int:
        return len(self._active)

    def get(self, number: object) -> UpstreamCall | None:
        return self._active.get(number) if isinstance(number, int) else None

    def only(self) -> UpstreamCall | None:
        """Return the call that a message without a request id belongs to, None unless exactly one is in flight."""
        return next(iter(self._active.values())) if len(self._active) == 1 else None

    def latest(self) -> UpstreamCall | None:
        return next(reversed(self._active.values()), None)

    async def enter(self, call: UpstreamCall) -> None:
        """Add a call, in turn when its tool is known to ask. Follow with leave(), also when cancelled."""
        if call.tool in self._asking_tools:
            await self._take_turn(call)
        self._active[call.number] = call

    def leave(self, call: UpstreamCall) -> None:
        self._active.pop(call.number, None)
        for scope in call.questions:
            scope.cancel()
        self._pass_turn(call)
        self._wake()

    def release_turn(self, call: UpstreamCall) -> None:
        """Note that the caller is asked: others may have the turn meanwhile."""
        self._pass_turn(call)
        self._wake()

    async def retake_turn(self, call: UpstreamCall) -> None:
        """Take the turn again, before the answer is passed on."""
        if call.number in self._active:
            await self._take_turn(call)

    async def _take_turn(self, call: UpstreamCall) -> None:
        if self._holder is None or self._holder is call:
            self._holder = call
            return
        turn = anyio.Event()
        self._waiting.append((call, turn))
        try:
            with anyio.move_on_after(ATTRIBUTION_SECONDS):
                await turn.wait()
        finally:
            if not turn.is_set():
                self._waiting.remove((call, turn))

    def _pass_turn(self, call: UpstreamCall) -> None:
        if self._holder is not call:
            return
        self._holder = None
        if self._waiting:
            self._holder, turn = self._waiting.popleft()
            turn.set()

    def _wake(self) -> None:
        if self._asking:
            self._change.set()
            self._change = anyio.Event()

    async def find_asker(self) -> UpstreamCall:
        """Return the call that a question belongs to, waiting until it can be only one.

        Raises:
            NotAllowed: none is in flight, or it cannot be told which.
        """
        began = anyio.current_time()
        self._asking += 1
        self._wake()
        try:
            with anyio.move_on_after(ATTRIBUTION_SECONDS):
                while self._find_candidate() is None and self._may_clear_up():
                    with anyio.move_on_after(CHECK_SECONDS):
                        await self._change.wait()
        finally:
            self._asking -= 1
        call = self._find_candidate()
        if call is None:
            raise NotAllowed(self._refusal(anyio.current_time() - began))
        self._asking_tools.add(call.tool)
        return call

    def _refusal(self, seconds: float) -> str:
        if not self._active:
            return "Statehold refused a question, because no call is in flight."
        return (
            f"Statehold waited {seconds:.0f} seconds and refused a question, because any of the {len(self._active)} calls "
            "in flight may have asked it; try again when the others have ended."
        )

    def _may_clear_up(self) -> bool:
        """Whether waiting may clear up to which call a question belongs."""
        candidates = self._candidates()
        if self._is_shared and any(call.questions for call in candidates):
            # That call is in flight until a person answers.
            return False
        # When every call waits for a question none will end: one is refused, which lets the others go on.
        return len(candidates) > max(1, self._asking)

    def _candidates(self) -> list[UpstreamCall]:
        """Return the calls that a question may belong to.

        A call whose question is open asks nothing else before the answer. A call whose client is gone is taken to ask
        nothing, unless its tool has asked before.
        """
        calls = list(self._active.values())
        if self._is_shared or len(calls) == 1:
            return calls
        return [
            call
            for call in calls
            if not call.questions and (call.ctx.reachable or call.tool in self._asking_tools)
        ]

    def _find_candidate(self) -> UpstreamCall | None:
        candidates = self._candidates()
        if len(candidates) > 1 and not self._is_shared and self._holder in candidates:
            # The others are calls of tools that have never asked.
            asking = [call for call in candidates if call.tool in self._asking_tools]
            return self._holder if asking == [self._holder] else None
        return candidates[0] if len(candidates) == 1 else None


__all__ = ["LEVELS", "UpstreamCall", "ActiveCalls", "reaches"]
