"""How long a call may take: without the time in which it waits for its caller, and not longer than its session."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from .errors import OutcomeUnknown, SessionClosed
from .services import JSON, CallContext

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")


class Timed:
    """The context of a call with a time limit, which stands still while the caller is asked. It lives as long as `scope`."""

    __slots__ = ("_asking", "_ctx", "_left", "_scope")

    def __init__(self, ctx: CallContext, scope: anyio.CancelScope) -> None:
        self._ctx = ctx
        self._scope = scope
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
def limited(seconds: float, ctx: CallContext) -> Generator[CallContext]:
    """Cancel what runs inside after `seconds`; what is asked through the context that is yielded takes none of them.

    Raises:
        TimeoutError: it was cancelled for that.
    """
    with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
        yield Timed(ctx, scope)
    if scope.cancelled_caught:
        raise TimeoutError


async def until_closed(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Run what is in flight in a session, cancelled when the session is closed.

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
    raise SessionClosed("The session was closed during the call.", session_id=session.id)


__all__ = ["Timed", "limited", "until_closed"]
