"""The entries of the audit log about logins. None has a value."""

from __future__ import annotations

import math
from typing import Final

from ...sessions.clock import Clock
from ...sessions.owned_map import BoundedMap
from ...sessions.principals.audit_log import AuditEntry, AuditEvent, AuditLog
from ...sessions.records import Principal

NOTED_SECONDS: Final = 300.0
"""Seconds in which one entry stands for all uses of a login, and one for all refusals: there is one with each request."""
MAX_NOTED: Final = 10_000


class LoginAudit:
    """Records what happens to the logins of principals, without a log nothing. Any task may use it.

    `command` is the person whose command runs in this process.
    """

    def __init__(self, log: AuditLog | None, clock: Clock, command: str | None = None) -> None:
        self._log = log
        self._clock = clock
        self._command = command
        self._noted = BoundedMap[tuple[str, ...], float](MAX_NOTED)
        """When a use or a refusal had its last entry."""

    async def admit(self, verb: str, owner: str, name: str) -> None:
        """Record a change before it is made.

        Raises:
            StoreUnavailable: the log is required and could not be written; the change must not be made.
        """
        if self._log is not None:
            await self._log.admit(self._entry(verb, owner, name, "ok"))

    def note(
        self, verb: str, owner: str, name: str, outcome: str = "ok", session: str | None = None
    ) -> None:
        """Record what has happened, in a session or outside of one. Never blocks."""
        if self._log is not None:
            self._log.note(self._entry(verb, owner, name, outcome, session))

    def note_seldom(self, verb: str, owner: str, name: str, outcome: str = "ok") -> None:
        """Record a use or a refusal, at most once in NOTED_SECONDS."""
        key, now = (verb, owner, name), self._clock.now()
        if now >= self._noted.get(key, -math.inf) + NOTED_SECONDS:
            self._noted[key] = now
            self.note(verb, owner, name, outcome)

    def _entry(
        self, verb: str, owner: str, name: str, outcome: str, session: str | None = None
    ) -> AuditEntry:
        return AuditEntry(
            at=self._clock.now(),
            event=AuditEvent.LOGIN,
            actor=Principal.of_key(owner),
            actor_name=self._command,
            operation=f"login.{verb}",
            tool=name,
            session_id=session,
            decision="deny" if verb == "refuse" else "allow",
            outcome=outcome,
            transport="" if self._command is None else "command",
        )
