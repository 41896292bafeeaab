"""The lease by which a person has control of a session: its begin, its renewal and its end, as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ..attribution import NOTE
from ..one_line import one_line
from ..records import ControlEnd, ControlLease, SessionDriver, SessionRecord
from ..times import format_duration

LEASE_SECONDS: Final = 60.0
"""Seconds for which a person keeps control without a renewal."""
MAX_CHARACTERS: Final = 500
"""Characters kept of a reason, of a reply, and of the name of a holder."""

_ENDS: Final[Mapping[ControlEnd, str]] = {
    ControlEnd.DONE: "and handed it back: done",
    ControlEnd.COULD_NOT: "and handed it back: could not do it",
    ControlEnd.EXPIRED: "and left without handing it back",
    ControlEnd.REVOKED: "until the access of that person was revoked",
}


def user_of(owner: str) -> str:
    """Return the `user` of the leases of a principal, by its key."""
    return f"principal {owner}"


def human_lease(
    lease: ControlLease,
    holder: str,
    now: float,
    *,
    user: str | None = None,
    login: str | None = None,
) -> ControlLease:
    """Return the lease of a person who takes control now."""
    return ControlLease(
        driver=SessionDriver.HUMAN,
        epoch=lease.epoch + 1,
        holder=one_line(holder)[:MAX_CHARACTERS],
        user=user,
        login=login,
        reason=lease.reason if lease.driver is SessionDriver.REQUESTED else None,
        since=now,
        expires_at=now + LEASE_SECONDS,
        notice=lease.notice,
    )


def renewed_lease(lease: ControlLease, now: float) -> ControlLease:
    """Return the lease of a person who is still there."""
    return lease.model_copy(update={"expires_at": now + LEASE_SECONDS})


def moved_lease(lease: ControlLease, now: float, login: str | None) -> ControlLease:
    """Return the lease of a person who goes on at another login. The earlier one has no control any more."""
    return renewed_lease(lease, now).model_copy(update={"epoch": lease.epoch + 1, "login": login})


def ended_lease(
    lease: ControlLease, now: float, end: ControlEnd, reply: str | None, changes: Sequence[str]
) -> ControlLease:
    """Return a lease that ends now, with the notice for the agent if a person drove. `changes` are sentences about what
    is different since then."""
    notice = lease.notice
    if lease.driver is SessionDriver.HUMAN:
        held = format_duration(max(1, round(now - lease.since)))
        words = f' with the words "{reply}"' if reply else ""
        sentence = f"{NOTE}: a person had control of the session for {held} {_ENDS[end]}{words}."
        notice = "\n".join(filter(None, (notice, " ".join([sentence, *changes]))))
    return ControlLease(
        epoch=lease.epoch,
        holder=lease.holder,
        reason=lease.reason,
        since=now,
        end=end,
        reply=reply,
        notice=notice,
    )


def due_end(record: SessionRecord, now: float, revoked: Collection[str] = ()) -> ControlEnd | None:
    """Return the end that the lease of a session has come to; None while it goes on: the one place that decides it.

    Besides, a person ends a lease by handing the session back. `revoked`: the users, as user_of() names them, whose access
    has ended. The end of the access of the owner ends the control of everybody.
    """
    lease = record.control
    if lease.driver is SessionDriver.AGENT:
        return None
    is_human = lease.driver is SessionDriver.HUMAN
    if is_human and not {lease.user, user_of(record.owner)}.isdisjoint(revoked):
        return ControlEnd.REVOKED
    return ControlEnd.EXPIRED if (lease.expires_at or 0.0) <= now else None


def is_driven(record: SessionRecord, now: float) -> bool:
    """Whether a person has control."""
    return record.control.driver is SessionDriver.HUMAN and due_end(record, now) is None
