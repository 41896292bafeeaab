"""Pausing an idle session so that another one gets its live place."""

from __future__ import annotations

from ..core import Core
from ..lifecycle import Event
from ..live.directory import Directory
from .pause import Pausing


class Eviction:
    """Frees live places of one registry when its budget asks; it lives as long as the registry.

    `foreign` means that the place is for another principal: then a session is paused only if it can be saved.
    """

    def __init__(self, core: Core, directory: Directory, pausing: Pausing) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing

    def start(self, session_id: str, foreign: bool) -> None:
        """Pause a session in the background."""
        self._core.tasks.spawn(self._evict, session_id, foreign)

    def may_evict(self, session_id: str, foreign: bool) -> bool:
        """Whether a session can be paused now; with `foreign` only if it can be saved."""
        session = self._directory.get(session_id)
        if session is None:
            return True
        return session.busy is None and (session.saveable or not foreign)

    async def _evict(self, session_id: str, foreign: bool) -> None:
        session = self._directory.get(session_id)
        is_paused = False
        try:
            is_paused = session is not None and await self._pausing.pause(
                session,
                Event.PAUSE_REQUESTED,
                cause="live_budget",
                release=True,
                saved_only=foreign,
            )
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


__all__ = ["Eviction"]
