"""The records of requests in the audit log: of clients, of people and commands, of logins, and of refused requests."""

from __future__ import annotations

import getpass
import secrets
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Literal, Self

from ...sessions.clock import Clock, SystemClock
from ...sessions.errors import SessionError
from ...sessions.owned_map import OwnedMap
from ...sessions.principals.audit_log import AuditEntry, AuditEvent, AuditLog
from ...sessions.records import LOCAL, Principal

READ_SECONDS: Final = 300.0
"""Seconds in which one entry stands for all reads of a person of the same thing: an open page reads again and again."""
MAX_READS: Final = 4096
NOBODY: Final = Principal(subject="")
"""The actor of a request without a valid token."""
MAX_REFUSALS: Final = 10
"""Refusals of all strangers in one second that have an entry each: they must not fill the store."""
MAX_NAMED_REFUSALS: Final = 100
"""Refusals of one person in one second that have an entry each, whatever others do."""
MAX_PEOPLE: Final = 4096
"""People whose refusals are counted; beyond that, the count of the one who was refused longest ago starts anew."""
DENIALS: Final = frozenset({"session_not_found", "not_allowed"})
"""Error codes that are decisions about the right to do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The party that asks, and where its request came from."""

    principal: Principal = LOCAL
    name: str | None = None
    """The person in words, for a login of the console or a command."""
    transport: str
    address: str | None = None

    @classmethod
    def of_command(cls) -> Self:
        """Return the user of this machine, as a command asks for it."""
        return cls(name=f"{user_name()} by a command", transport="command")


class OpenRequest:
    """A recorded request that runs. Call end() once, and once more when the call of a task has ended; or run it in a `with`
    block, whose error is the outcome."""

    def __init__(self, log: AuditLog | None, clock: Clock, entry: AuditEntry) -> None:
        self._log = log
        self._clock = clock
        self._entry = entry

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        code = error.code if isinstance(error, SessionError) else "error"
        self.end("ok" if error is None else code)

    def end(self, outcome: str) -> None:
        """Record how it ended: `ok`, `error`, `cancelled` or an error code."""
        if self._log is None:
            return
        now = self._clock.now()
        self._log.note(
            replace(
                self._entry,
                at=now,
                event=AuditEvent.RESULT,
                decision="deny" if outcome in DENIALS else "allow",
                outcome=outcome,
                duration_seconds=now - self._entry.at,
                arguments=None,
            )
        )


@dataclass(slots=True)
class _Refusals:
    """The refusals of one person, or of all strangers."""

    second: int = 0
    count: int = 0
    """Those in that second."""
    omitted: int = 0
    """Those that have no entry, since the last entry."""


class Audit:
    """Records requests in the audit log of a process. Without a log it does nothing."""

    def __init__(self, log: AuditLog | None = None, clock: Clock | None = None) -> None:
        self.is_on = log is not None
        self._log = log
        self._clock = clock or SystemClock()
        self._reads = OwnedMap[tuple[str, ...], float](MAX_READS)
        """The time of the last entry of each read."""
        self._refusals_of_strangers = _Refusals()
        self._refusals = OwnedMap[tuple[str, str], _Refusals](MAX_PEOPLE)

    async def admit(
        self, actor: Actor, operation: str, session_id: str | None = None, **members: Any
    ) -> OpenRequest:
        """Record a request that is about to run. `members` are further members of its AuditEntry.

        Raises:
            StoreUnavailable: the log is required and could not be written; the request must not run.
        """
        call = secrets.token_hex(8)
        entry = self._entry(
            AuditEvent.REQUEST, actor, operation, session_id=session_id, call=call, **members
        )
        if self._log is not None:
            await self._log.admit(entry)
        return OpenRequest(self._log, self._clock, entry)

    async def admit_read(self, actor: Actor, operation: str, session_id: str | None) -> None:
        """Record that a person reads of a session, at most once in READ_SECONDS.

        Raises:
            StoreUnavailable: as admit().
        """
        key = _read_key(actor, operation, session_id)
        if self._log is None or not self._is_new(key):
            return
        # Only an entry that is durable stands for later reads: simultaneous ones have an entry each.
        await self._log.admit(
            self._entry(AuditEvent.REQUEST, actor, operation, session_id=session_id)
        )
        self._reads.put(key[:2], key, self._clock.now())

    def refuse_read(
        self, actor: Actor, operation: str, session_id: str | None, outcome: str
    ) -> None:
        """Record that a read was refused, at most once in READ_SECONDS."""
        key = (*_read_key(actor, operation, session_id), outcome)
        event = AuditEvent.REFUSAL
        if self._is_new(key) and self.record(
            event, actor, operation, outcome, session_id=session_id
        ):
            self._reads.put(key[:2], key, self._clock.now())

    def _is_new(self, key: tuple[str, ...]) -> bool:
        """Whether a read has no entry of the last READ_SECONDS."""
        noted_at = self._reads.get(key)
        return noted_at is None or self._clock.now() - noted_at >= READ_SECONDS

    def record(
        self,
        event: Literal[AuditEvent.LOGIN, AuditEvent.REFUSAL],
        actor: Actor,
        operation: str,
        outcome: str,
        *,
        session_id: str | None = None,
    ) -> bool:
        """Record a request that was refused, or a login that ended with `ok` or the code of its error.

        Of many refusals of one person or of all strangers in one second the first have entries. Return whether this one
        has; the next entry of the same counts the others.
        """
        if self._log is None:
            return False
        is_ok, omitted = outcome == "ok", 0
        if not is_ok:
            refusals, most, second = (
                self._refusals_of_strangers,
                MAX_REFUSALS,
                int(self._clock.now()),
            )
            if actor.principal != NOBODY:
                who, most = (actor.principal.key, actor.name or ""), MAX_NAMED_REFUSALS
                refusals = self._refusals.get(who) or _Refusals()
                self._refusals.put(who, who, refusals)
            if refusals.second != second:
                refusals.second, refusals.count = second, 0
            refusals.count += 1
            if refusals.count > most:
                refusals.omitted += 1
                return False
            omitted, refusals.omitted = refusals.omitted, 0
        self._log.note(
            self._entry(
                event,
                actor,
                operation,
                session_id=session_id,
                decision="allow" if is_ok else "deny",
                outcome=outcome,
                omitted=omitted or None,
            )
        )
        return True

    def _entry(self, event: AuditEvent, actor: Actor, operation: str, **members: Any) -> AuditEntry:
        """Return an entry of this moment."""
        return AuditEntry(
            at=self._clock.now(),
            event=event,
            operation=operation,
            actor=actor.principal,
            actor_name=actor.name,
            transport=actor.transport,
            address=actor.address,
            **members,
        )


def _read_key(actor: Actor, operation: str, session_id: str | None) -> tuple[str, ...]:
    name, address = actor.name or "", actor.address or ""
    return (actor.principal.key, name, operation, session_id or "", address)


def user_name() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number without a name.
        return "the user"
