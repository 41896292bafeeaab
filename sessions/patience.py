"""How long a call may take, and what its caller is told while it has to wait.

Without the time in which it waits for its caller, and not longer than its session.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from .beside import beside
from .errors import OutcomeUnknown, SessionClosed
from .services import JSON, CallContext

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")


TELL_SECONDS: Final = 1.0


class Waiting:
    """Tells a caller who wants to know, once a second, what its call waits for before it begins."""

    __slots__ = ("_before", "_ctx", "farthest", "told")

    def __init__(self, ctx: CallContext, before: float = 0.0) -> None:
        """`before` is how far its caller was told of already, when the call is sent again."""
        self._ctx = ctx
        self._before = before
        self.told = before
        """How many seconds it told of. What is told later comes after them: progress has to increase (2026-07-28)."""
        self.farthest = before
        """How far its caller was told of, also by the tool."""

    async def during(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, and raise what it raises."""
        if not self._ctx.wants_progress:
            return await work()
        return await beside(partial(self._tell, what), work)

    async def _tell(self, what: str) -> None:
        while True:
            await anyio.sleep(TELL_SECONDS)
            self.told = self.farthest = self.told + TELL_SECONDS
            seconds = self.told - self._before
            with suppress(Exception):
                await self._ctx.progress(self.told, None, f"{what}: {seconds:g} seconds so far")


class Timed:
    """The context of a call with a time limit, which stands still while the caller is asked. It lives as long as `scope`."""

    __slots__ = ("_asking", "_ctx", "_left", "_scope", "_waiting")

    def __init__(
        self, ctx: CallContext, scope: anyio.CancelScope, waiting: Waiting | None = None
    ) -> None:
        self._ctx = ctx
        self._scope = scope
        self._waiting = waiting
        self._asking = 0
        self._left = 0.0

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._ctx.meta

    @property
    def wants_progress(self) -> bool:
        return self._ctx.wants_progress

    @property
    def log_level(self) -> str | None:
        return self._ctx.log_level

    @property
    def capabilities(self) -> JSON:
        return self._ctx.capabilities

    @property
    def input_responses(self) -> JSON | None:
        return self._ctx.input_responses

    @property
    def request_state(self) -> str | None:
        return self._ctx.request_state

    @property
    def can_return_input_required(self) -> bool:
        return self._ctx.can_return_input_required

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        waiting = self._waiting
        if waiting is not None:
            if before := waiting.told:
                progress, total = progress + before, None if total is None else total + before
            waiting.farthest = max(waiting.farthest, progress)
        await self._ctx.progress(progress, total, message)

    async def log(self, params: JSON) -> None:
        await self._ctx.log(params)

    async def ask(self, method: str, params: JSON) -> JSON:
        if not self._asking:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        self._asking += 1
        try:
            return await self._ctx.ask(method, params)
        finally:
            self._asking -= 1
            if not self._asking:
                self._scope.deadline = anyio.current_time() + self._left


@contextmanager
def limited(
    seconds: float, ctx: CallContext, waiting: Waiting | None = None
) -> Generator[CallContext]:
    """Cancel what runs inside after `seconds`; what is asked through the context that is yielded takes none of them.

    Its progress comes after what was told while it was `waiting`.

    Raises:
        TimeoutError: it was cancelled for that.
    """
    with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
        yield Timed(ctx, scope, waiting)
    if scope.cancelled_caught:
        raise TimeoutError


async def until_closed(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Run what is in flight in a session, cancelled when the session is closed, or the process ends.

    Raises:
        OutcomeUnknown, SessionClosed: it was cancelled for that.
    """
    with anyio.CancelScope() as closing:
        session.calls.add(closing)
        try:
            return await work
        finally:
            session.calls.discard(closing)
    if session.fenced:
        raise OutcomeUnknown("Another process took the session over during the call.")
    if not session.ends:
        raise OutcomeUnknown("The server was stopped during the call.", session_id=session.id)
    raise SessionClosed("The session was closed during the call.", session_id=session.id)


__all__ = ["Timed", "Waiting", "limited", "until_closed"]
