"""Records what people do: requests of the console and of commands, logins, and refused requests."""

from __future__ import annotations

import getpass
import secrets
from dataclasses import dataclass
from typing import Any, Final

from ...sessions.audit.entry import AuditEntry, AuditEvent
from ...sessions.audit.log import AuditLog
from ...sessions.clock import Clock
from ...sessions.owned_map import OwnedMap
from ...sessions.records import LOCAL, Principal
from .requests import OpenRequest

LOOK_SECONDS: Final = 300.0
"""Seconds in which one entry stands for all looks of a person at the same thing: an open page looks again and again."""
LOOKS: Final = 4096
NOBODY: Final = Principal(subject="")
"""The actor of a request without a valid token."""
REFUSALS: Final = 10
"""Refusals of all strangers in one second that have an entry each: they must not fill the store."""
NAMED_REFUSALS: Final = 100
"""Refusals of one person in one second that have an entry each, whatever others do."""
PEOPLE: Final = 4096
"""People whose refusals are counted; beyond that, the count of the one who was refused longest ago starts anew."""


@dataclass(slots=True)
class _Refusals:
    """The refusals of one person, or of all strangers."""

    second: int = 0
    count: int = 0
    """Those in that second."""
    omitted: int = 0
    """Those that have no entry, since the last entry."""


class PersonAudit:
    """Records the requests of people in the audit log of a process."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._looks = OwnedMap[tuple[str, ...], float](LOOKS)
        """The time of the last entry of each look."""
        self._refusals_of_strangers = _Refusals()
        self._refusals = OwnedMap[tuple[str, str], _Refusals](PEOPLE)

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
            event=AuditEvent.REQUEST,
            operation=operation,
            actor=principal,
            transport=transport,
            address=address,
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
        key = (principal.key, name, operation, session_id or "", address or "")
        if not self._is_new(key):
            return
        entry = self._entry(
            event=AuditEvent.REQUEST,
            operation=operation,
            actor=principal,
            transport=transport,
            address=address,
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
        key = (principal.key, name, operation, session_id or "", address or "", outcome)
        if self._is_new(key):
            is_noted = self.note_refusal(
                operation,
                outcome,
                name=name,
                principal=principal,
                session_id=session_id,
                transport=transport,
                address=address,
            )
            if is_noted:
                self._note_look(key)

    def _is_new(self, key: tuple[str, ...]) -> bool:
        """Whether a look has no entry of the last LOOK_SECONDS."""
        noted_at = self._looks.get(key)
        return noted_at is None or self._clock.now() - noted_at >= LOOK_SECONDS

    def _note_look(self, key: tuple[str, ...]) -> None:
        self._looks.put(key[:2], key, self._clock.now())

    def note_login(
        self,
        operation: str,
        outcome: str,
        name: str | None,
        principal: Principal,
        address: str,
        transport: str = "console",
    ) -> None:
        """Record a login or a logout, with `ok` or the code of its error. Of many failures in one second the first count."""
        if outcome != "ok":
            self._note_refusal(
                event=AuditEvent.LOGIN,
                operation=operation,
                outcome=outcome,
                name=name,
                principal=principal,
                transport=transport,
                address=address,
            )
            return
        entry = self._entry(
            event=AuditEvent.LOGIN,
            operation=operation,
            actor=principal,
            transport=transport,
            address=address,
            actor_name=name,
            decision="allow",
            outcome=outcome,
        )
        self._log.note(entry)

    def note_refusal(
        self,
        operation: str,
        outcome: str,
        *,
        name: str | None = None,
        principal: Principal = NOBODY,
        session_id: str | None = None,
        transport: str,
        address: str | None,
    ) -> bool:
        """Record a request that was refused. Of many in one second the first have entries. Return whether this one has."""
        return self._note_refusal(
            event=AuditEvent.REFUSAL,
            operation=operation,
            outcome=outcome,
            name=name,
            principal=principal,
            session_id=session_id,
            transport=transport,
            address=address,
        )

    def _note_refusal(
        self,
        event: AuditEvent,
        operation: str,
        outcome: str,
        name: str | None,
        principal: Principal,
        *,
        session_id: str | None = None,
        transport: str,
        address: str | None,
    ) -> bool:
        """Record a refusal, unless its person, or all strangers, had too many in this second. Return whether it was.

        The next entry of the same counts the others.
        """
        refusals, most, second = self._refusals_of_strangers, REFUSALS, int(self._clock.now())
        if principal != NOBODY:
            who, most = (principal.key, name or ""), NAMED_REFUSALS
            refusals = self._refusals.get(who) or _Refusals()
            self._refusals.put(who, who, refusals)
        if refusals.second != second:
            refusals.second, refusals.count = second, 0
        refusals.count += 1
        if refusals.count > most:
            refusals.omitted += 1
            return False
        omitted, refusals.omitted = refusals.omitted, 0
        entry = self._entry(
            event=event,
            operation=operation,
            actor=principal,
            transport=transport,
            address=address,
            actor_name=name,
            session_id=session_id,
            decision="deny",
            outcome=outcome,
            omitted=omitted or None,
        )
        self._log.note(entry)
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
