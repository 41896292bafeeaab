"""The changes of the sessions of this process, for those who follow them. Nothing runs unless somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from ...sessions.live.session import LiveSession
from ...sessions.owned_map import OwnedMap
from ...sessions.registry import Registry

SCAN_SECONDS: Final = 0.4
"""Seconds for which a scan of all sessions serves everybody who asks."""
MAX_RETURNED: Final = 200
MAX_KEPT: Final = 10_000

Fingerprint = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A session that changed, came or went. Later changes have higher numbers."""

    session_id: str
    owner: str
    number: int


class SessionChangeLog:
    """The last change of each session of one registry, by number. It is as old as the last scan."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: dict[str, tuple[Fingerprint, str]] | None = None
        self._changes = OwnedMap[str, SessionChange](MAX_KEPT)
        self._number = 0
        self._scanned_at = float("-inf")

    def read(self, since: int | None) -> tuple[list[SessionChange], int]:
        """Return the changes after a number, the oldest first, and the number to ask with next.

        At most MAX_RETURNED are returned; None asks for the number alone.
        """
        now = anyio.current_time()
        if now - self._scanned_at >= SCAN_SECONDS:
            self._scanned_at = now
            self._scan()
        if since is None:
            return [], self._number
        found = [change for _, _, change in self._changes.entries() if change.number > since]
        page = found[:MAX_RETURNED]
        return page, page[-1].number if len(page) < len(found) else self._number

    def _scan(self) -> None:
        before = self._seen
        self._seen = {
            session.id: (_fingerprint(session), session.record.owner)
            for session in self._registry.owned_sessions()
        }
        if before is None:
            return
        for session_id, (fingerprint, owner) in self._seen.items():
            if session_id not in before or before[session_id][0] != fingerprint:
                self._note(session_id, owner)
        for session_id in before.keys() - self._seen.keys():
            self._note(session_id, before[session_id][1])

    def _note(self, session_id: str, owner: str) -> None:
        self._number += 1
        self._changes.put(owner, session_id, SessionChange(session_id, owner, self._number))


def _fingerprint(session: LiveSession) -> Fingerprint:
    record, lease = session.record, session.record.control
    return (
        session.status,
        session.in_flight,
        session.idle_since,
        session.activity.ended,
        record.name,
        record.lifetime_ends_at,
        record.metadata,
        tuple(record.services),
        (lease.driver, lease.epoch, lease.since),
    )
