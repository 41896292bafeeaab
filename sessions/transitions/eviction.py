"""Sessions that give up their place: an idle one for another session, and those of a node that owns more than others."""

from __future__ import annotations

import contextvars
from typing import Final

from ..cluster.placement import excess
from ..core import Core
from ..lifecycle import Status
from ..live.directory import Directory
from ..live.session import LiveSession
from .pause import (
    NODE_CROWDED,
    PLACE_NEEDED,
    PLACE_NEEDED_BY_OTHERS,
    Pausing,
    may_pause,
)

MAX_AT_ONCE: Final = 4
"""Most sessions that are given up with one heartbeat."""
IDLE_SECONDS: Final = 10.0
"""Seconds without a call before a session is given up."""


class Rebalancing:
    """Pauses the sessions of one registry that were idle for longest while its node owns many more than others."""

    def __init__(self, core: Core, directory: Directory, pausing: Pausing) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing

    def rebalance(self) -> None:
        """Start to give up a few sessions if the node is crowded. Called with each heartbeat."""
        node = self._core.node
        count = min(MAX_AT_ONCE, excess(len(self._directory), node.up_nodes()))
        if not count or node.is_draining:
            return
        idle_before = self._core.clock.now() - IDLE_SECONDS
        idle = [
            session
            for session in self._directory
            if session.status is Status.IDLE
            and session.idle_since < idle_before
            and may_pause(session, NODE_CROWDED)
        ]
        for session in sorted(idle, key=lambda session: session.idle_since)[:count]:
            self._core.tasks.spawn(self._give_up, session)

    async def _give_up(self, session: LiveSession) -> None:
        await self._pausing.pause(session, NODE_CROWDED)


NOTICE_SECONDS: Final = 60.0
"""Seconds without a call after which a session may lose its place, if its principal has more than a fair share.

While another principal waits, a part of its longest wait is enough: a wait that ends before the notice would be a refusal.
"""
WAIT_PART: Final = 3
"""The longest wait for a place is this many notices long."""


class Eviction:
    """Frees live places of one registry when its budget asks; it lives as long as the registry.

    `foreign` means that the place is for another principal: then a session is paused only if it can be saved, or if it has
    been idle for a notice and its principal has more than a fair share. The next call of it is told the loss.
    """

    def __init__(self, core: Core, directory: Directory, pausing: Pausing) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing

    def evict(self, holder: str, foreign: bool) -> None:
        """Pause a session in the background."""
        # The log and the trace of the call that needs the place are not those of the session that gives it up.
        contextvars.Context().run(self._core.tasks.spawn, self._evict, holder, foreign)

    def may_evict(self, holder: str, foreign: bool) -> bool:
        """Whether a session can be paused now; with `foreign` only if it can be saved or must give way."""
        session = self._directory.get(holder)
        if session is None:
            return True
        if foreign and may_pause(session, PLACE_NEEDED_BY_OTHERS):
            return True
        return may_pause(session, PLACE_NEEDED) and (not foreign or self._must_give_way(session))

    def may_refill(self, holder: str) -> bool:
        """Whether a session can be saved and has been idle for NOTICE_SECONDS, so that its place may go to the reserve."""
        session = self._directory.get(holder)
        if session is None:
            return True
        can_be_paused = may_pause(session, PLACE_NEEDED_BY_OTHERS)
        return can_be_paused and self._is_noticed(session, NOTICE_SECONDS)

    def _must_give_way(self, session: LiveSession) -> bool:
        budget = self._core.budget
        if not budget.is_waited_for or not budget.is_over_share(session.id):
            return False
        longest = self._core.policy.queue_seconds / WAIT_PART
        return self._is_noticed(session, min(NOTICE_SECONDS, longest))

    def _is_noticed(self, session: LiveSession, seconds: float) -> bool:
        noticed_at = session.idle_since + seconds
        if self._core.clock.now() >= noticed_at:
            return True
        # Expiry lets the budget ask again then.
        self._core.deadlines.schedule(session.id, noticed_at)
        return False

    async def _evict(self, session_id: str, foreign: bool) -> None:
        session = self._directory.get(session_id)
        is_paused = False
        try:
            if session is not None:
                loses = not foreign or self._must_give_way(session)
                cause = PLACE_NEEDED if loses else PLACE_NEEDED_BY_OTHERS
                is_paused = await self._pausing.pause(session, cause)
        finally:
            if not is_paused:
                may_ask_again = (
                    session is not None
                    and not session.in_flight
                    and not session.ownership_ended.is_set()
                )
                self._core.budget.keep_holder(session_id, idle=may_ask_again)
                if may_ask_again and not self.may_evict(session_id, foreign):
                    # It became busy, or could not be saved: ask another one now, and this one again when it can leave.
                    self._core.budget.mark_idle(session_id)
