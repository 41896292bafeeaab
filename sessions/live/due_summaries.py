"""The sessions whose summary a model of the user's is to write."""

from __future__ import annotations

from typing import Final

import anyio

from ..owned_map import OwnedMap
from ..policy import SummaryTriggers
from ..records import Principal
from .session import LiveSession

MAX_COUNTED: Final = 10_000
"""Sessions whose messages are counted."""
UNUSED: Final = ("deleted", "connect_failed", "shutdown")
"""Reasons of a close after which no summary is read."""


class DueSummaries:
    """The summaries that are due in one registry. It lives as long as the registry.

    The parts that change sessions report here what they did; actions/summaries.py takes what is due. `triggers` are the
    events after which a summary is due.
    """

    def __init__(self, triggers: SummaryTriggers) -> None:
        self._triggers = triggers
        self._messages = OwnedMap[str, int](MAX_COUNTED)
        """Messages of each session since its last summary, as far as this process has seen them."""
        self._due: dict[str, str] = {}
        """The sessions whose summary is due, with their owners, in the order in which it became due."""
        self._added = anyio.Event()

    def record_message(self, session: LiveSession) -> None:
        """Count a message of a session."""
        most = self._triggers.every_messages
        if not most:
            return
        count = (self._messages.pop(session.id) or 0) + 1
        if count >= most:
            self._add(session)
            return
        self._messages.put(session.record.owner, session.id, count)

    def record_paused(self, session: LiveSession) -> None:
        """Record that a session was paused, but not for the end of this process."""
        if self._triggers.on_pause:
            self._add(session)

    def record_closed(self, session: LiveSession) -> None:
        """Record that a session was recorded as closed."""
        self._messages.pop(session.id)
        if self._triggers.on_close and session.record.reason not in UNUSED:
            self._add(session)

    def _add(self, session: LiveSession) -> None:
        self._due[session.id] = session.record.owner
        self._added.set()

    async def take(self) -> tuple[Principal, str]:
        """Wait until a summary is due, and return the owner and the id of its session."""
        while not self._due:
            self._added = anyio.Event()
            await self._added.wait()
        session_id = next(iter(self._due))
        return Principal.of_key(self._due.pop(session_id)), session_id
