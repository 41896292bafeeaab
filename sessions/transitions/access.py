"""Access to sessions for calls and changes: wait until a session is ready, or hold it while it changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from ..core import Core
from ..errors import SessionBusy, SessionPaused, ShuttingDown
from ..lifecycle import LIVE, Status
from ..live.directory import Directory
from ..live.session import LiveSession
from ..records import Principal
from .pause import Pausing

HANDOVER_SECONDS: Final = 30.0
"""Seconds that a call waits for the end of a pause after which another node takes its session on."""


class Access:
    """Finds the sessions of one registry in a usable status; it lives as long as the registry."""

    def __init__(self, core: Core, directory: Directory, pausing: Pausing) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing

    async def ready(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> LiveSession:
        """Return a session that takes a call; see Registry.ready."""
        for _ in range(8):
            await self.leave_when_draining(principal, ref, namespace)
            session = await self._directory.find(principal, ref, namespace)
            if session.status is Status.CREATING:
                raise SessionBusy("The session is still being created.", session_id=session.id)
            async with session.changing:
                pass
            if session.status is Status.PAUSED and not session.ownership_ended.is_set():
                if not self._core.policy.auto_resume:
                    await self._pausing.give_back(session)
                    raise SessionPaused("The session is paused.", session_id=session.id)
                await self._pausing.resume(session, cause="call")
            # The node may have begun to drain meanwhile: then the session is about to be given up.
            may_begin = session.status in LIVE and not self._directory.draining
            if may_begin and not session.ownership_ended.is_set():
                return session
        raise SessionBusy("The session keeps changing.")

    async def leave_when_draining(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> None:
        """If this node drains, wait until it does not own a session any more, so that another node takes it on.

        Raises:
            ShuttingDown: it takes too long, or there are no other nodes.
        """
        if not self._directory.draining:
            return
        if not self._core.node.can_give_up:
            raise ShuttingDown
        session = self._directory.find_here(principal, ref, namespace)
        if session is None:
            return
        with anyio.move_on_after(HANDOVER_SECONDS):
            await session.ownership_ended.wait()
            return
        raise ShuttingDown

    @asynccontextmanager
    async def hold(
        self, principal: Principal, ref: str, *, drives: bool = False
    ) -> AsyncGenerator[LiveSession]:
        """Hold an open session while the block changes it; release a paused one afterwards.

        `drives`: the change touches its connections, so only its driver may make it.

        Raises:
            HumanInControl: a person drives the session, with `drives`.
        """
        for _ in range(8):
            session = await self._directory.find(principal, ref)
            try:
                async with session.changing:
                    if session.ownership_ended.is_set() or session.ends:
                        continue
                    if drives:
                        session.require_agent()
                    yield session
                    if session.status in (Status.IDLE, Status.PAUSED):
                        # It was used.
                        session.idle_since = self._core.clock.now()
                    return
            finally:
                await self.give_back(session)
        raise SessionBusy("The session keeps changing.")

    async def give_back(self, session: LiveSession) -> None:
        """Give up a paused session that was only claimed to be read or changed, so that any process may claim it."""
        # Only if paused: the release waits for `changing`, so a pause that holds it would delay the caller's notice.
        if session.status is Status.PAUSED:
            await self._pausing.give_back(session)
