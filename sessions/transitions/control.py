"""Control of a session by a person: ask for one, take control, renew it, hand it back."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import anyio

from ..core import Core
from ..errors import ControlRefused, SessionBusy, SessionError
from ..journal.entries import LinkEvent, control_entry, link_entry
from ..lifecycle import LIVE, Status
from ..live.control_lease import (
    LEASE_SECONDS,
    MAX_CHARACTERS,
    due_end,
    ended_lease,
    human_lease,
    moved_lease,
    renewed_lease,
)
from ..live.directory import Directory
from ..live.session import LiveSession
from ..one_line import one_line
from ..records import ControlEnd, ControlLease, Principal, SessionDriver
from ..services import Drivable
from .access import Access
from .admission import busy
from .close import cancel_calls

logger = logging.getLogger("statehold.sessions")

STORE_SECONDS: Final = 15.0
"""Seconds between two renewals that are written."""
REQUEST_SECONDS: Final = 600.0
"""Seconds for which a request for a person stands after its agent stopped waiting, unless the agent has left."""
DRAIN_SECONDS: Final = 5.0
"""Seconds that running calls get to end before they are cancelled."""
END_SECONDS: Final = 5.0
"""Seconds that cancelled calls get to end."""
_ENDED: Final = "This control of the session has ended."
HAND_OVER_SECONDS: Final = 10.0
"""Seconds that a connection gets to prepare for a new driver."""


class Controls:
    """The control leases of the sessions of one registry; it lives as long as the registry.

    A session has one driver. Taking control refuses new calls at once, lets running ones end or cancels them, and is durable
    before it is granted. Calls get `human_in_control` until the person hands the session back or the lease expires.
    """

    def __init__(self, core: Core, directory: Directory, access: Access) -> None:
        self._core = core
        self._directory = directory
        self._access = access

    async def request(
        self, principal: Principal, ref: str, reason: str, *, wait_seconds: float = 0.0
    ) -> LiveSession:
        """Ask for a person, until REQUEST_SECONDS after the wait of the agent. The agent goes on driving.

        A request with another reason replaces an earlier one; one with the same renews it. Does nothing while a person
        drives, and while the agent has not read how the last control ended: that is the end of its earlier request.
        """
        session = await self._access.ready(principal, ref)
        async with session.changing:
            if not session.has_human_driver and session.notice is None:
                now, lease = self._core.clock.now(), session.record.control
                reason = self._redact(reason)
                is_asked = lease.driver is SessionDriver.REQUESTED and lease.reason == reason
                request = ControlLease(
                    driver=SessionDriver.REQUESTED,
                    epoch=lease.epoch,
                    reason=reason,
                    since=lease.since if is_asked else now,
                    expires_at=now + wait_seconds + REQUEST_SECONDS,
                )
                # A renewal is the same event.
                await self._save(session, request, is_recorded=not is_asked)
                if not is_asked:
                    self._core.metrics.human_requests.add()
        return session

    async def note_agent_left(self, principal: Principal, ref: str, since: float) -> None:
        """Record that the agent that asked at `since` has left: its request ends with the time that it would have waited."""
        session = await self._directory.find(principal, ref)
        async with session.changing:
            lease = session.record.control
            if lease.driver is SessionDriver.REQUESTED and lease.since == since:
                ends_at = (lease.expires_at or 0.0) - REQUEST_SECONDS
                left = lease.model_copy(update={"agent_left": True, "expires_at": ends_at})
                await self._save(session, left, is_recorded=False)

    async def take(
        self,
        principal: Principal,
        ref: str,
        holder: str,
        *,
        user: str | None = None,
        login: str | None = None,
    ) -> LiveSession:
        """Give a person control. The lease of the returned session has the epoch that renew() and give_back() need.

        `holder` is the person in words, `user` its key, `login` the login that gets control.

        Raises:
            ControlRefused: another person drives, or was faster.
            SessionBusy: a call could not be ended, or the session changed meanwhile.
        """
        session = await self._access.ready(principal, ref)
        if session.has_human_driver:
            raise ControlRefused(
                f"{session.record.control.holder or 'A person'} has control of the session.",
                session_id=session.id,
            )
        # No await since the check: no call is admitted from here on.
        session.has_human_driver = True
        try:
            await _end_calls(session)
            async with session.changing:
                if session.status not in LIVE or session.ownership_ended.is_set():
                    raise SessionBusy("The session changed meanwhile.", session_id=session.id)
                await _prepare(session)
                now = self._core.clock.now()
                lease = human_lease(session.record.control, holder, now, user=user, login=login)
                await self._save(session, lease)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _hand_over(session)
            session.has_human_driver = False
            raise
        self._core.budget.mark_busy(session.id)
        return session

    async def renew(
        self,
        principal: Principal,
        ref: str,
        epoch: int,
        *,
        user: str | None = None,
        login: str | None = None,
    ) -> LiveSession:
        """Extend a person's control to LEASE_SECONDS from now.

        With another login of the same person, control moves to that login, and the epoch of its lease rises.

        Raises:
            ControlRefused: it ended, or another person has control.
        """
        session = await self._directory.find(principal, ref)
        async with session.changing:
            lease, now = _require_lease(session, epoch), self._core.clock.now()
            if lease.user != user:
                raise _foreign(session)
            if lease.login != login:
                await session.save(control=moved_lease(lease, now, login))
            elif (lease.expires_at or 0.0) - now < LEASE_SECONDS - STORE_SECONDS:
                await session.save(control=renewed_lease(lease, now))
            self._directory.schedule(session)
        return session

    async def give_back(
        self,
        principal: Principal,
        ref: str,
        epoch: int,
        *,
        end: ControlEnd = ControlEnd.DONE,
        reply: str | None = None,
        login: str | None = None,
        by_operator: bool = False,
    ) -> LiveSession:
        """Hand a session back to its agent. The agent's next result says how it ended and what changed.

        `by_operator`: the user of the machine hands it back, whoever has control.

        Raises:
            ControlRefused: the control ended before, or another login has it.
        """
        session = await self._directory.find(principal, ref)
        if by_operator:
            _require_lease(session, epoch)
        else:
            _require_login(session, epoch, login)
        await self._end(session, epoch, end, None if reply is None else self._redact(reply))
        return session

    async def end_due(self, session: LiveSession, revoked: Collection[str] = ()) -> None:
        """End a lease that due_end() ends now: a request that nobody answered, or the control of a person."""
        end = due_end(session.record, self._core.clock.now(), revoked)
        if end is not None:
            await self._end(session, session.record.control.epoch, end, None)

    async def record_link(
        self,
        principal: Principal,
        ref: str,
        event: LinkEvent,
        *,
        link: str,
        by: str,
        rights: str,
        guest: str,
    ) -> LiveSession:
        """Write into the journal that a person made, opened or revoked a link. `link` is its id, `guest` the key of
        its user.

        If the guest of a revoked link has control, it ends.

        Raises:
            SessionClosed, SessionExpired, SessionFailed: the session is closed.
        """
        async with self._access.hold(principal, ref) as session:
            seq, now = session.next_seq(), self._core.clock.now()
            entry = link_entry(
                session_id=session.id,
                epoch=session.record.epoch,
                seq=seq,
                at=now,
                event=event,
                link=link,
                by=self._redact(by),
                rights=rights,
            )
            try:
                await session.save(journal=[entry])
            except BaseException:
                session.free_seq(seq)
                raise
        if event == "revoked":
            await self.end_due(session, (guest,))
        return session

    async def grant(
        self, principal: Principal, ref: str, epoch: int, *, login: str | None = None
    ) -> ControlGrant:
        """Return the right to act in a session of this process, for the login that has control of it.

        Raises:
            ControlRefused: the control ended, or another login has it.
        """
        session = await self._directory.find(principal, ref)
        _require_login(session, epoch, login)
        return ControlGrant(session, epoch)

    async def lease_of(self, principal: Principal, session_id: str) -> ControlLease:
        """Return who drives a session, wherever it is open."""
        session = self._directory.find_here(principal, session_id)
        if session is not None:
            return session.record.control
        return (await self._directory.find_record(principal, session_id)).control

    async def wait_for_change(
        self, principal: Principal, session_id: str, *, seconds: float
    ) -> None:
        """Wait until the lease of a session of this node changes, for `seconds` at most."""
        session = self._directory.find_here(principal, session_id)
        with anyio.move_on_after(seconds):
            if session is None:
                await anyio.sleep_forever()
            else:
                await session.control_change.wait()

    async def _end(
        self, session: LiveSession, epoch: int, end: ControlEnd, reply: str | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            async with session.changing:
                lease, now = session.record.control, self._core.clock.now()
                if lease.driver is SessionDriver.AGENT or lease.epoch != epoch:
                    return
                if session.has_human_driver != (lease.driver is SessionDriver.HUMAN):
                    # Somebody takes control just now, and the request ends with that.
                    return
                changes = await _hand_over(session) if session.has_human_driver else ()
                ended = ended_lease(lease, now, end, reply, changes)
                await self._save(session, ended)
                if not session.has_human_driver:
                    return
                session.has_human_driver = False
                session.notice = ended.notice
                session.idle_since = now
                if session.status is Status.IDLE:
                    self._core.budget.mark_idle(session.id)

    async def _save(
        self, session: LiveSession, lease: ControlLease, *, is_recorded: bool = True
    ) -> None:
        if is_recorded:
            seq = session.next_seq()
            entry = control_entry(session.id, session.record.epoch, seq, lease)
            try:
                await session.save(control=lease, journal=[entry])
            except BaseException:
                session.free_seq(seq)
                raise
        else:
            await session.save(control=lease)
        session.notify_control_change()
        self._directory.schedule(session)

    def _redact(self, text: str) -> str:
        return one_line(self._core.redactor.text(text, MAX_CHARACTERS))


class ControlGrant:
    """The right of a login to act in a session, from the beginning of its control to its end."""

    def __init__(self, session: LiveSession, epoch: int) -> None:
        self._session = session
        self.epoch = epoch

    def require(self, epoch: int) -> None:
        """Do nothing if the right stands, and `epoch`, as the viewer knows it, is that of the right.

        Raises:
            ControlRefused: it does not.
        """
        lease = _require_lease(self._session, epoch)
        if lease.epoch != self.epoch or self._session.ownership_ended.is_set():
            raise ControlRefused(_ENDED, session_id=self._session.id)


def _drivable(session: LiveSession) -> list[Drivable]:
    lives = [binding.live for binding in session.bindings.values()]
    return [
        live.connection
        for live in lives
        if live is not None and live.usable and isinstance(live.connection, Drivable)
    ]


async def _prepare(session: LiveSession) -> None:
    """Have the open connections prepare for a person.

    Raises:
        SessionBusy: one did not.
    """
    for connection in _drivable(session):
        try:
            with anyio.fail_after(HAND_OVER_SECONDS):
                await connection.begin_human_control()
        except (SessionError, TimeoutError) as error:
            raise SessionBusy(
                f"A connection could not be handed over: {error or 'it did not answer'}.",
                session_id=session.id,
            ) from None


async def _hand_over(session: LiveSession) -> list[str]:
    """Have the open connections go on with the agent, and return what the person changed, as sentences."""
    changes: list[str] = []
    for connection in _drivable(session):
        try:
            with anyio.fail_after(HAND_OVER_SECONDS):
                changes += await connection.end_human_control()
        except (SessionError, TimeoutError) as error:
            logger.warning("session %s was not compared after control: %s", session.id, error)
    return changes


async def _end_calls(session: LiveSession) -> None:
    """Wait for the calls in flight, and cancel those that take too long.

    Raises:
        SessionBusy: a call does not end.
    """
    with anyio.move_on_after(DRAIN_SECONDS):
        await session.quiet.wait()
    if session.in_flight:
        cancel_calls(session)
        with anyio.move_on_after(END_SECONDS):
            await session.quiet.wait()
    if session.in_flight:
        raise busy(session)


def _require_lease(session: LiveSession, epoch: int) -> ControlLease:
    lease = session.record.control
    if lease.driver is not SessionDriver.HUMAN or lease.epoch != epoch:
        raise ControlRefused(_ENDED, session_id=session.id)
    return lease


def _require_login(session: LiveSession, epoch: int, login: str | None) -> ControlLease:
    lease = _require_lease(session, epoch)
    if lease.login != login:
        raise _foreign(session)
    return lease


def _foreign(session: LiveSession) -> ControlRefused:
    holder = session.record.control.holder or "a person"
    return ControlRefused(f"Another login has control: {holder}.", session_id=session.id)
