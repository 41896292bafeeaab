"""Time limits of calls, and progress messages while a call waits.

Time in which a call waits for its caller's answer does not count. A call ends at the latest with its session.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

import anyio

from ..concurrency import RaceLost, race
from ..errors import OutcomeUnknown, SessionBusy, SessionClosed, SessionError
from ..json_codec import JSON
from ..live.connection import LiveConnection, OpenQuestions
from ..live.session import LiveSession
from ..services import CallContext, CallerOptions
from .hand_over import OPEN_SECONDS

T = TypeVar("T")


PROGRESS_SECONDS: Final = 1.0
STARTING_SECONDS: Final = 5.0
"""Seconds between messages that a call waits for a service to start, which may take minutes."""
BLOCKED_SECONDS: Final = 3.0
"""Seconds that a call without progress messages waits behind unanswered questions before it is refused."""


class WaitProgress:
    """Sends progress messages to a caller that wants them, while its call waits to begin."""

    __slots__ = ("_before", "_ctx", "highest_progress", "reported_seconds")

    def __init__(self, ctx: CallContext, before: float = 0.0) -> None:
        """`before` is the progress already reported to its caller, when the call is sent again."""
        self._ctx = ctx
        self._before = before
        self.reported_seconds = before
        """Seconds of waiting reported so far. The tool's progress is added to them: progress must increase (2026-07-28)."""
        self.highest_progress = before
        """The highest progress reported so far, also by the tool."""

    async def take_slot(self, live: LiveConnection, session_id: str, owner: str) -> str:
        """Wait for a slot of a connection, in turns with other owners; the caller releases it.

        Raises:
            SessionBusy: every slot waits for the answer to a question, and the caller takes no progress messages.
        """
        slot: str | None = None

        async def take() -> str:
            nonlocal slot
            slot = await live.slots.take(owner)
            return slot

        try:
            return await self._run_behind_questions(
                lambda: live.questions.describe(session_id) if live.blocked_by_questions else None,
                take,
            )
        except BaseException:
            if slot is not None:
                live.slots.release(slot)
            raise

    async def _run_behind_questions(
        self, describe: Callable[[], str | None], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Run `work` and return its result. `describe` returns the question that `work` waits behind, None for none."""

        async def refuse() -> None:
            blocked_seconds = 0.0
            while blocked_seconds < BLOCKED_SECONDS:
                await anyio.sleep(PROGRESS_SECONDS)
                blocked_seconds = blocked_seconds + PROGRESS_SECONDS if describe() else 0.0

        if self._ctx.options.wants_progress:
            activity = "Waiting for the calls before"
            return await race(partial(self._tell, lambda: activity, describe), work)
        try:
            return await race(refuse, work)
        except RaceLost:
            raise SessionBusy(
                f"The call was not run: {describe() or 'the calls before wait for an answer'}.",
                recovery="Answer that question and try again, or end it with session_restart.",
                retry_after=BLOCKED_SECONDS,
            ) from None

    async def run(self, activity: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` and return its result, with progress messages."""
        if not self._ctx.options.wants_progress:
            return await work()
        return await race(partial(self._tell, lambda: activity), work)

    async def run_service_start(
        self, activity: Callable[[], str], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Run `work`, which waits for services to start, and return its result. The first message is sent at once."""
        if not self._ctx.options.wants_progress:
            return await work()
        await self._say(PROGRESS_SECONDS, activity())
        self._before = self.reported_seconds
        return await race(partial(self._tell, activity, every=STARTING_SECONDS), work)

    async def _tell(
        self,
        activity: Callable[[], str],
        describe: Callable[[], str | None] = lambda: None,
        every: float | None = None,
    ) -> None:
        seconds = PROGRESS_SECONDS if every is None else every
        while True:
            await anyio.sleep(seconds)
            question = describe()
            elapsed = f"{self.reported_seconds + seconds - self._before:g} seconds so far"
            await self._say(
                seconds, f"{activity()}: {elapsed}{f'; {question}' if question else ''}"
            )

    async def _say(self, seconds: float, message: str) -> None:
        self.reported_seconds = self.highest_progress = self.reported_seconds + seconds
        with suppress(Exception):
            await self._ctx.progress(self.reported_seconds, None, message)


QuestionOrigin: TypeAlias = "tuple[OpenQuestions, LiveSession, str]"
"""Origin of the questions of a call: the open questions of its connection, its session, and its tool."""


class DeadlineContext:
    """Context of a call with a time limit, which is suspended while the caller is asked. It lives as long as `scope`."""

    __slots__ = (
        "_asking",
        "_ctx",
        "_is_handed_over",
        "_questions",
        "_remaining_seconds",
        "_scope",
        "_waiting",
        "error",
        "is_approved",
        "note_upstream_task",
        "operation_id",
        "wants_facts",
    )

    def __init__(
        self,
        ctx: CallContext,
        scope: anyio.CancelScope,
        waiting: WaitProgress | None = None,
        questions: QuestionOrigin | None = None,
        operation_id: str | None = None,
        wants_facts: bool = False,
    ) -> None:
        self.operation_id = operation_id
        self.wants_facts = wants_facts
        self.note_upstream_task: Callable[[str], Awaitable[None]] | None = None
        self._ctx = ctx
        self._questions = questions
        self.error: SessionError | None = None
        self.is_approved = False
        """Whether a person approved the call, who did not see the caller's `_meta`: then it is not passed on."""
        self._scope = scope
        self._waiting = waiting
        self._asking = 0
        self._remaining_seconds = 0.0
        self._is_handed_over = False

    @property
    def options(self) -> CallerOptions:
        options = self._ctx.options
        return replace(options, meta={}) if self.is_approved and options.meta else options

    @property
    def capabilities(self) -> JSON:
        return self._ctx.capabilities

    @property
    def reachable(self) -> bool:
        return self._ctx.reachable

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        waiting = self._waiting
        if waiting is not None:
            if before := waiting.reported_seconds:
                progress, total = progress + before, None if total is None else total + before
            waiting.highest_progress = max(waiting.highest_progress, progress)
        await self._ctx.progress(progress, total, message)

    async def log(self, params: JSON) -> None:
        await self._ctx.log(params)

    async def ask(self, method: str, params: JSON) -> JSON:
        if not self._asking:
            if not self._is_handed_over:
                self._remaining_seconds = self._scope.deadline - anyio.current_time()
                self._scope.deadline = math.inf
            if self._questions is not None:
                questions, session, tool = self._questions
                questions.open(self, session.id, tool)
        self._asking += 1
        try:
            return await self._ctx.ask(method, params)
        finally:
            self._asking -= 1
            if not self._asking:
                if not self._is_handed_over:
                    self._scope.deadline = anyio.current_time() + self._remaining_seconds
                if self._questions is not None:
                    self._questions[0].close(self)

    def hand_over(self) -> None:
        """Give the call OPEN_SECONDS from now on, the time of questions included: no request waits for it any more."""
        if self._scope.cancel_called:
            return  # Its time was over before.
        self._is_handed_over = True
        self._scope.deadline = anyio.current_time() + OPEN_SECONDS

    def end(self, error: SessionError) -> None:
        """Cancel the call, which fails with `error`."""
        self.error = error
        self._scope.cancel()


@contextmanager
def enforce_deadline(
    seconds: float,
    ctx: CallContext,
    waiting: WaitProgress | None = None,
    questions: QuestionOrigin | None = None,
    operation_id: str | None = None,
    wants_facts: bool = False,
    session: LiveSession | None = None,
) -> Generator[DeadlineContext]:
    """Cancel the block after `seconds`. The time of questions asked through the yielded context does not count.

    The tool's progress is added to the progress that `waiting` reported. With `session`, the block ends at the latest with
    the session.

    Raises:
        TimeoutError: the block took too long.
        SessionError: the call was ended while its caller was asked.
        EndedWithSession: the session or the process ends.
    """
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    deadline_context = DeadlineContext(ctx, scope, waiting, questions, operation_id, wants_facts)
    calls = set[anyio.CancelScope]() if session is None else session.calls
    with scope:
        calls.add(scope)
        try:
            yield deadline_context
        finally:
            calls.discard(scope)
    if not scope.cancelled_caught:
        return
    if deadline_context.error is None and scope.deadline > anyio.current_time():
        raise EndedWithSession
    raise deadline_context.error or TimeoutError


class EndedWithSession(Exception):
    """Raised when a block was cancelled because its session or the process ends; see end_error()."""


@contextmanager
def end_with_session(session: LiveSession) -> Generator[None]:
    """Cancel the block when the session is closed or the process ends.

    Raises:
        EndedWithSession: the block was cancelled for that reason.
    """
    with anyio.CancelScope() as scope:
        session.calls.add(scope)
        try:
            yield
        finally:
            session.calls.discard(scope)
    if scope.cancelled_caught:
        raise EndedWithSession


def end_error(session: LiveSession) -> SessionError:
    """Return the error of a call that ended with its session."""
    if session.fenced:
        return OutcomeUnknown("Another process took the session over during the call.")
    if session.has_human_driver:
        return OutcomeUnknown(
            "A person took control of the session during the call.", session_id=session.id
        )
    if not session.ends:
        # Either the process ends, or the lease of this node is over.
        return OutcomeUnknown("The server was stopped during the call.", session_id=session.id)
    return SessionClosed("The session was closed during the call.", session_id=session.id)
