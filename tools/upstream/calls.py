"""The requests in flight on one connection: their progress and log messages, and the call that a question belongs to.

Over Streamable HTTP the stream of a request carries what it caused. Elsewhere a question or a log message of a legacy
upstream does not name its call. So calls of tools that have asked before take turns, and a question is only passed on when
it can belong to a single call. A call with an open question delays no other call, and a call whose client has disconnected
does not prevent questions to other callers. A log message that could belong to several calls reaches the owner's.
"""

from __future__ import annotations

import contextvars
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from mcp_types import LOG_LEVEL_META_KEY

from ...sessions.errors import NotAllowed
from ...sessions.json_codec import JSON
from ...sessions.services import SERVERS_LEVEL, CallContext
from .negotiation import Peer

logger = logging.getLogger("statehold.upstream")

MAX_MESSAGES: Final = 512
"""Messages that may wait for a slow caller; the oldest are dropped."""

FLUSH_SECONDS: Final = 5.0
ATTRIBUTION_SECONDS: Final = 10.0
"""Seconds that a question may wait until it can be assigned to a call."""
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks for disconnected callers while a question waits; no event reports them."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

Message = Callable[[], Awaitable[None]]
Spawn = Callable[[contextvars.Context, Callable[[], Awaitable[None]]], bool]


class UpstreamCall:
    """One request in flight, from ActiveCalls.enter() until leave()."""

    __slots__ = (
        "_context",
        "_highest_progress",
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
        self._highest_progress = 0.0
        self._messages: list[Message] = []
        self._is_delivering = False
        self._idle: anyio.Event | None = None
        self._context = contextvars.copy_context()

    def with_meta(self, params: JSON, peer: Peer) -> JSON:
        """Return the parameters of its request with the caller's `_meta` and the members that the peer needs."""
        options = self.ctx.options
        meta = dict(options.meta)
        if peer.modern:
            meta |= peer.meta(self.ctx.capabilities)
            if options.log_level is not None:
                # Without a level a server of this era sends nothing, and SDK servers of the older one send all.
                meta[LOG_LEVEL_META_KEY] = options.log_level or LEVELS[0]
        if options.wants_progress:
            meta["progressToken"] = self.number
        return {**params, "_meta": meta} if meta else params

    def progress(self, params: JSON) -> None:
        progress, total, message = (
            params.get("progress"),
            params.get("total"),
            params.get("message"),
        )
        if not isinstance(progress, int | float) or isinstance(progress, bool):
            return
        self._highest_progress = max(self._highest_progress, progress)
        ctx = self.ctx
        valid_total = (
            total if isinstance(total, int | float) and not isinstance(total, bool) else None
        )
        text = message if isinstance(message, str) else None
        self._enqueue(lambda: ctx.progress(progress, valid_total, text))

    def report_status(self, message: str) -> None:
        """Report a message that has no progress, which has to increase."""
        self.progress({"progress": self._highest_progress + 1, "message": message})

    def log(self, params: JSON) -> None:
        ctx = self.ctx
        if reaches(params.get("level"), ctx.options.log_level):
            self._enqueue(lambda: ctx.log(params))

    def _enqueue(self, message: Message) -> None:
        self._messages.append(message)
        del self._messages[:-MAX_MESSAGES]
        if not self._is_delivering:
            self._idle = anyio.Event()
            self._is_delivering = self._spawn(self._context, self._deliver)

    async def _deliver(self) -> None:
        assert self._idle is not None
        try:
            while self._messages:
                await self._messages.pop(0)()
        except Exception:
            logger.exception("a progress or log message could not be delivered to the caller")
        finally:
            self._is_delivering = False
            self._idle.set()

    async def flush(self) -> None:
        """Wait up to FLUSH_SECONDS until the caller has received the messages that came before the answer."""
        if self._is_delivering and self._idle is not None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._idle.wait()
        self._messages.clear()


def reaches(level: object, threshold: str | None) -> bool:
    """Whether a message of `level` reaches a caller who wants messages of `threshold` and above."""
    if threshold == SERVERS_LEVEL:
        return True
    if threshold not in LEVELS:
        return False
    return level not in LEVELS or LEVELS.index(str(level)) >= LEVELS.index(threshold)


class LogLevel:
    """The log level of one legacy upstream: the lowest one that its callers set.

    While every caller leaves the level to the server, none is set. The server cannot be asked for its own level again, so
    these callers count as the lowest level once another caller has set one.
    """

    def __init__(self) -> None:
        self._wanted: set[str] = set()
        self._current = SERVERS_LEVEL

    def lower(self, level: str) -> str | None:
        """Return the level to set for one more caller, None for no change."""
        self._wanted.add(level)
        set_levels = self._wanted.intersection(LEVELS)
        if not set_levels:
            return None
        is_left = SERVERS_LEVEL in self._wanted
        lowest = LEVELS[0] if is_left else min(set_levels, key=LEVELS.index)
        if lowest == self._current:
            return None
        self._current = lowest
        return lowest


class ActiveCalls:
    """The calls in flight on one connection, and the turn among those that may ask questions.

    Calls of a tool that has asked before take turns, so that a question can be assigned to one of them. A call releases its
    turn while its question is open and retakes it before the answer is passed on. It waits ATTRIBUTION_SECONDS at most for
    a turn. Calls of other tools never wait. On a `shared` connection, a question is only passed on if one call is in flight.
    A question that names its call needs no turn.

    `asking_tools` are the tools that have asked before, on any connection to the upstream.
    """

    def __init__(self, asking_tools: set[str], *, shared: bool = False) -> None:
        self._is_shared = shared
        self._active: dict[int, UpstreamCall] = {}
        self._asking_tools = asking_tools
        self._last_refusal = -math.inf
        self._holder: UpstreamCall | None = None
        self._waiting: deque[tuple[UpstreamCall, anyio.Event]] = deque()
        self._asking = 0
        self._change = anyio.Event()

    def __len__(self) -> int:
        return len(self._active)

    def get(self, number: object) -> UpstreamCall | None:
        return self._active.get(number) if isinstance(number, int) else None

    def log(self, params: JSON, number: int | None, *, names_calls: bool) -> None:
        """Pass a log message on. `number` is the request that caused it, if the upstream told. `names_calls`: it tells.

        Without a number it belongs to the only call in flight, or it may belong to any of them: then all calls of the
        session's owner get it, and on a `shared` connection none.
        """
        calls = list(self._active.values())
        if number is not None:
            calls = [call for call in calls if call.number == number]
        elif len(calls) > 1 or names_calls:
            is_ambiguous = self._is_shared and len(calls) > 1
            calls = [] if is_ambiguous else [call for call in calls if call.ctx.options.is_owner]
        for call in calls:
            call.log(params)

    async def enter(self, call: UpstreamCall) -> None:
        """Add a call; if its tool has asked before, wait for its turn. Call leave() afterwards, also after cancellation."""
        if call.tool in self._asking_tools:
            await self._take_turn(call)
        self._active[call.number] = call

    def add(self, call: UpstreamCall) -> None:
        """Add a call without a turn. Call leave() afterwards."""
        self._active[call.number] = call

    def leave(self, call: UpstreamCall) -> None:
        self._active.pop(call.number, None)
        for scope in call.questions:
            scope.cancel()
        if self._holder is call:
            self._pass_turn(call)
        if self._asking:
            self._wake()

    async def ask(
        self,
        method: str,
        params: JSON,
        number: int | None,
        on_found: Callable[[UpstreamCall], None] = lambda call: None,
    ) -> JSON:
        """Put a question to the caller of the call that it belongs to, and return the answer.

        `number` is the request that caused it, if the upstream told. `on_found` is called with the call.

        Raises:
            NotAllowed: No call may have asked it, or more than one, or its caller does not answer.
        """
        call = await self._find_asker() if number is None else self._active.get(number)
        if call is None:
            raise NotAllowed("Statehold refused a question, because the call that asked has ended.")
        on_found(call)
        with anyio.CancelScope() as scope:
            call.questions.add(scope)
            if number is None:
                # Other calls have the turn while the caller answers.
                self._pass_turn(call)
            self._wake()
            try:
                try:
                    return await call.ctx.ask(method, params)
                finally:
                    if number is None and call.number in self._active:
                        await self._take_turn(call)
            finally:
                call.questions.discard(scope)
        raise NotAllowed("The call ended before its question was answered.")

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

    async def _find_asker(self) -> UpstreamCall:
        """Return the call that a question belongs to. Waits until only one call is possible.

        Raises:
            NotAllowed: No call is in flight, or more than one remains possible.
        """
        began = anyio.current_time()
        self._asking += 1
        self._wake()
        try:
            while self._find_candidate() is None and self._may_clear_up(began):
                with anyio.move_on_after(CHECK_SECONDS):
                    await self._change.wait()
        finally:
            self._asking -= 1
        call = self._find_candidate()
        if call is None:
            self._last_refusal = anyio.current_time()
            self._wake()
            raise NotAllowed(self._refusal(self._last_refusal - began))
        self._asking_tools.add(call.tool)
        return call

    def _refusal(self, seconds: float) -> str:
        if not self._active:
            return "Statehold refused a question, because no call is in flight."
        return (
            f"Statehold waited {seconds:.0f} seconds and refused a question, because any of the {len(self._active)} calls "
            "in flight may have asked it; try again when the others have ended."
        )

    def _may_clear_up(self, began: float) -> bool:
        """Whether waiting may leave only one possible call, for a question that has waited since `began`."""
        candidates = self._candidates()
        if not candidates or (self._is_shared and any(call.questions for call in candidates)):
            # A call with an open question stays in flight until a person answers.
            return False
        # The last of several questions waits for the end of the calls whose questions were refused.
        latest = began if self._asking > 1 else max(began, self._last_refusal)
        return anyio.current_time() < latest + ATTRIBUTION_SECONDS

    def _candidates(self) -> list[UpstreamCall]:
        """Return the calls that a question may belong to.

        A call with an open question asks no second one before the answer. A call whose client has disconnected is assumed
        to ask nothing, unless its tool has asked before.
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
            # Prefer the holder of the turn over calls of tools that have never asked.
            asking = [call for call in candidates if call.tool in self._asking_tools]
            return self._holder if asking == [self._holder] else None
        return candidates[0] if len(candidates) == 1 else None
