"""Records what people do: requests of the console and of commands, logins, and refused requests."""

from __future__ import annotations

import getpass
import secrets
from collections import OrderedDict
from typing import Any, Final

from ...sessions.audit.entry import AuditEntry, AuditEvent
from ...sessions.audit.log import AuditLog
from ...sessions.clock import Clock
from ...sessions.records import LOCAL, Principal
from .requests import OpenRequest

LOOK_SECONDS: Final = 300.0
"""Seconds in which one entry stands for all looks of a person at the same thing: an open page looks again and again."""
LOOKS: Final = 4096
NOBODY: Final = Principal(subject="")
"""The actor of a request without a valid token."""
REFUSALS: Final = 10
"""Refusals in one second that have an entry each: strangers cause them, and must not fill the store."""


class PersonAudit:
    """Records the requests of people in the audit log of a process."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._looks = OrderedDict[tuple[str, ...], float]()
        """The time of the last entry of each look, the oldest first."""
        self._refusal_second = 0
        self._refusal_count = 0
        self._omitted = 0

    async def admit(
        self,
        name: str,
        operation: str,
        session_id: str | None,
        *,
        principal: Principal = LOCAL,
        transport: str,
        address: str | None = None,
    ) -> OpenRequest:
        """Record a change that a person asks for.

        Raises:
            StoreUnavailable: the log is required and could not be written; the change must not be made.
        """
        entry = self._entry(
            *(AuditEvent.REQUEST, operation, principal, transport, address),
            actor_name=name,
            session_id=session_id,
            call=secrets.token_hex(8),
        )
        await self._log.admit(entry)
        return OpenRequest(self._log, self._clock, entry)

    async def look(
        self,
        name: str,
        operation: str,
        session_id: str | None,
        *,
        principal: Principal,
        transport: str,
        address: str | None,
    ) -> None:
        """Record that a person reads of a session, at most once in LOOK_SECONDS.

        Raises:
            StoreUnavailable: as admit().
        """
        key = (name, principal.key, operation, session_id or "", address or "")
        if not self._is_new(key):
            return
        entry = self._entry(
            *(AuditEvent.REQUEST, operation, principal, transport, address),
            actor_name=name,
            session_id=session_id,
        )
        # Only an entry that is durable stands for later looks: simultaneous ones have an entry each.
        await self._log.admit(entry)
        self._note_look(key)

    def note_refused_look(
        self,
        name: str,
        operation: str,
        session_id: str | None,
        outcome: str,
        *,
        principal: Principal,
        transport: str,
        address: str | None,
    ) -> None:
        """Record that a look was refused, at most once in LOOK_SECONDS."""
        key = (name, principal.key, operation, session_id or "", address or "", outcome)
        if self._is_new(key) and self._admits_refusal():
            self._note_look(key)
            entry = self._entry(
                *(AuditEvent.REFUSAL, operation, principal, transport, address),
                actor_name=name,
                session_id=session_id,
                decision="deny",
                outcome=outcome,
            )
            self._log.note(entry)

    def _is_new(self, key: tuple[str, ...]) -> bool:
        """Whether a look has no entry of the last LOOK_SECONDS."""
        return self._clock.now() - self._looks.get(key, -LOOK_SECONDS) >= LOOK_SECONDS

    def _note_look(self, key: tuple[str, ...]) -> None:
        self._looks[key] = self._clock.now()
        self._looks.move_to_end(key)
        if len(self._looks) > LOOKS:
            self._looks.popitem(last=False)

    def note_login(
        self,
        operation: str,
        outcome: str,
        name: str | None,
        principal: Principal,
        address: str,
        transport: str = "console",
    ) -> None:
        """Record a login or a logout, with `ok` or the code of its error. Of the failures of strangers the first count."""
        if principal is NOBODY and not self._admits_refusal():
            return
        entry = self._entry(
            *(AuditEvent.LOGIN, operation, principal, transport, address),
            actor_name=name,
            decision="allow" if outcome == "ok" else "deny",
            outcome=outcome,
        )
        self._log.note(entry)

    def note_refusal(
        self,
        operation: str,
        outcome: str,
        *,
        principal: Principal = NOBODY,
        session_id: str | None = None,
        transport: str,
        address: str,
    ) -> None:
        """Record a request that was refused before it was read. Of many in one second the first have entries."""
        if not self._admits_refusal():
            return
        omitted, self._omitted = self._omitted, 0
        entry = self._entry(
            *(AuditEvent.REFUSAL, operation, principal, transport, address),
            session_id=session_id,
            decision="deny",
            outcome=outcome,
            omitted=omitted or None,
        )
        self._log.note(entry)

    def _admits_refusal(self) -> bool:
        """Whether one more refusal of this second has an entry. The next entry counts those that have none."""
        second = int(self._clock.now())
        if second != self._refusal_second:
            self._refusal_second, self._refusal_count = second, 0
        self._refusal_count += 1
        if self._refusal_count > REFUSALS:
            self._omitted += 1
            return False
        return True

    def _entry(
        self,
        event: AuditEvent,
        operation: str,
        actor: Principal,
        transport: str,
        address: str | None,
        **members: Any,
    ) -> AuditEntry:
        """Return an entry of this moment. `members` are further members of an AuditEntry."""
        return AuditEntry(
            at=self._clock.now(),
            event=event,
            operation=operation,
            actor=actor,
            transport=transport,
            address=address,
            **members,
        )


def user_name() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number without a name.
        return "the user"


__all__ = ["PersonAudit", "user_name"]
