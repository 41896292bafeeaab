"""The acceptance of a changed definition by a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...sessions.principals.audit_log import AuditEntry, AuditEvent, AuditLog
from ...sessions.records import LOCAL, Principal
from ...sessions.store.people.pins import PinRecord

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


async def accept_pin(
    store: SQLStore,
    log: AuditLog | None,
    pin: PinRecord,
    now: float,
    *,
    actor: Principal = LOCAL,
    name: str | None = None,
) -> bool:
    """Pin the definition that a person was shown. Return False if the service offers a third one by now.

    Raises:
        StoreUnavailable: it cannot be stored, or not be recorded in a log that is required.
    """
    if log is not None:
        await log.admit(
            AuditEntry(
                at=now,
                event=AuditEvent.REQUEST,
                actor=actor,
                actor_name=name,
                operation="pins.accept",
                tool=f"{pin.service}/{pin.name}",
                outcome=pin.offered_digest,
                transport="command" if actor == LOCAL else "console",
            )
        )
    return await store.access.accept_pin(pin, now)
