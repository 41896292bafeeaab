"""The changes of the sessions of this process, for those who follow them. Nothing runs unless somebody asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import anyio

from ...sessions.live.session import LiveSession
from ...sessions.owned_map import OwnedMap
from ...sessions.registry import Registry

MAX_RETURNED: Final = 200
MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A session that changed, came or went. Later changes have higher numbers."""

    session_id: str
    owner: str
    number: int


class SessionChangeLog:
    """The last change of each session of one registry, by number, from the first read on.

    A session changes when the store has written something of it, when a call begins or ends, and when a call that was
    handed over asks.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._changes = OwnedMap[str, SessionChange](MAX_KEPT)
        self._number = 0
        self._noted = anyio.Event()
        self._is_followed = False

    def read(self, since: int | None) -> tuple[list[SessionChange], int]:
        """Return the changes after a number, the oldest first, and the number to ask with next.

        At most MAX_RETURNED are returned; None asks for the number alone.
        """
        if not self._is_followed:
            self._is_followed = True
            self._follow()
        if since is None:
            return [], self._number
        found = [change for _, _, change in self._changes.entries() if change.number > since]
        page = found[:MAX_RETURNED]
        return page, page[-1].number if len(page) < len(found) else self._number

    async def wait(self, since: int) -> None:
        """Return when there is a change after a number."""
        while self._number <= since:
            if self._noted.is_set():
                self._noted = anyio.Event()
            await self._noted.wait()

    def note(self, session_id: str, owner: str) -> None:
        """Add a change."""
        self._number += 1
        self._changes.put(owner, session_id, SessionChange(session_id, owner, self._number))
        self._noted.set()

    def _follow(self) -> None:
        registry = self._registry
        registry.core.store.on_written.append(self._note_written)
        registry.admission.on_counted.append(self._note_session)
        registry.directory.on_kept.append(self._note_session)
        registry.on_purged.append(self._note_purged)
        registry.running_operations.on_changed.append(
            lambda session_id, _: self._note_written([session_id])
        )

    def _note_session(self, session: LiveSession) -> None:
        self.note(session.id, session.record.owner)

    def _note_written(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            session = self._registry.directory.get(session_id)
            if session is not None:
                self._note_session(session)

    def _note_purged(self, session_id: str) -> None:
        change = self._changes.get(session_id)
        if change is not None:
            self.note(session_id, change.owner)
