"""Counting calls in and out: the two steps between idle and active (T04, T05)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..core import Core
from ..errors import HumanInControl, SessionBusy, SessionError
from ..lifecycle import LIVE, OPEN, Event, Status
from ..live.session import LiveSession
from ..one_line import plural
from ..principals.rates import CallLimits

USED_SECONDS = 60.0
"""Shortest time between two writes of the last use of an open session."""


class Admission:
    """Counts the calls in flight in the sessions of one registry. Both steps are synchronous."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._call_limits = CallLimits(core.limits, core.clock.now)
        self._in_flight: dict[str, int] = {}
        """The calls in flight of each principal that has some, by its key."""
        self.on_counted: list[Callable[[LiveSession], None]] = []
        """Called when a call was counted in or out. They must not block."""

    def admit(
        self, session: LiveSession, service: str, tool: str, sharee: str | None = None
    ) -> None:
        """Count a call in. The session cannot change between a check by the caller and this, if the caller does not await.

        `sharee` is the key of a caller with which the owner shares the session: the call counts to that one's limits.

        Raises:
            HumanInControl: a person drives the session.
            SessionBusy: too many calls are in flight already.
            SessionLimit: the owner of the session, or the sharee, has too many calls in flight, or calls too often.
            NotAllowed: the owner may not use the service.
        """
        session.require_agent()
        most = self._core.policy.calls_per_session
        # The last quarter is for the owner.
        if session.in_flight >= (most if sharee is None else most - most // 4):
            raise busy(session)
        if self._core.limits.is_active:
            owner = session.record.owner
            caller = sharee or owner
            in_flight = self._in_flight.get(caller, 0)
            self._call_limits.admit(owner, caller, service, tool, in_flight)
        self.count_in(session, sharee)

    def count_in(self, session: LiveSession, sharee: str | None = None) -> None:
        """Count in a call that runs already, in a session of any status."""
        if session.in_flight == 0:
            self._core.budget.mark_busy(session.id)
        caller = sharee or session.record.owner
        self._in_flight[caller] = self._in_flight.get(caller, 0) + 1
        session.record_calls(session.in_flight + 1)
        for report in self.on_counted:
            report(session)
        if session.status is Status.IDLE:
            session.apply(Event.CALL_ADMITTED)

    def in_flight(self, owner: str) -> int:
        """Return the calls of a principal that this process has in flight."""
        return self._in_flight.get(owner, 0)

    def release(self, session: LiveSession, sharee: str | None = None) -> None:
        """Count a call out. The idle time starts with the end of the last one."""
        caller = sharee or session.record.owner
        self._in_flight[caller] -= 1
        if not self._in_flight[caller]:
            del self._in_flight[caller]
        session.record_calls(session.in_flight - 1)
        for report in self.on_counted:
            report(session)
        if session.in_flight:
            return
        now = self._core.clock.now()
        session.idle_since = now
        if session.status is Status.ACTIVE:
            session.apply(Event.CALLS_SETTLED)
            self._core.budget.mark_idle(session.id)
        if now - session.used_saved_at > USED_SECONDS and session.status in OPEN:
            session.used_saved_at = now
            self._core.tasks.spawn(_save_used, session, now)


def calls_of(session: LiveSession, services: Collection[str], *, sent: bool = False) -> int:
    """Return how many calls in flight may use the connections of some services: all but those known to use others.

    `sent`: calls that are known to wait for a connection, or for the calls before them, do not count.
    """
    running = session.activity.running
    return session.in_flight - sum(
        call.service not in services or (sent and not call.was_sent) for call in running
    )


async def _save_used(session: LiveSession, now: float) -> None:
    if not session.ownership_ended.is_set():
        await session.save(used_at=now)


def busy(session: LiveSession) -> SessionError:
    """Return the error for a change that has to wait for work in the session."""
    if session.has_human_driver:
        return HumanInControl(session.id, session.record.control.reason or "")
    use = session.use()
    if session.status is Status.IDLE and use is not None:
        return SessionBusy(
            f"The session is in use ({use}).",
            session_id=session.id,
            recovery="End that, or wait until it is over, then try again.",
        )
    if session.status is Status.ERROR:
        return SessionBusy(
            "The session lost a connection and is connecting again.",
            session_id=session.id,
            recovery="Try again in a moment, or restart the session.",
        )
    calls = f"{plural(session.in_flight, 'call')} in flight"
    asking_count = sum(
        len(b.live.questions.calls_of(session.id)) for b in session.bindings.values() if b.live
    )
    if asking_count:
        return SessionBusy(
            f"The session has {calls}, {asking_count} of them waiting for an answer of the caller.",
            session_id=session.id,
            recovery="Answer it, or end it with session_restart or session_close with force.",
        )
    condition = f"has {calls}" if session.status in LIVE else f"is {session.status}"
    return SessionBusy(f"The session {condition}.", session_id=session.id)
