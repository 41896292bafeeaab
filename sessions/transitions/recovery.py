"""Recovery of lost connections, and the pause of sessions that have none left (T15, T16)."""

from __future__ import annotations

import logging
from collections.abc import Collection

import anyio

from ..core import Core
from ..errors import SessionError, StoreUnavailable
from ..lifecycle import LIVE, Event, Status
from ..live.binding import Binding, lost_reason
from ..live.connector import Connector
from ..live.session import LiveSession
from ..live.snapshots import save_quietly
from ..one_line import one_line
from .close import Closing
from .pause import PauseCause, Pausing

logger = logging.getLogger("statehold.sessions")


class Recovery:
    """Recovers the lost connections of one registry, each by itself; it lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        connector: Connector,
        pausing: Pausing,
        closing: Closing,
    ) -> None:
        self._core = core
        self._connector = connector
        self._pausing = pausing
        self._closing = closing

    async def recover(
        self, session: LiveSession, binding: Binding, contenders: Collection[str]
    ) -> None:
        """Open the lost connection of a binding again, within the attempts it has.

        Sessions that end each other's connections are paused instead.
        """
        recovery, backoff = binding.recovery, self._core.policy.recovery_backoff

        def is_due() -> bool:
            # A call may have opened it, a restart replaced it, and another loss begun another recovery.
            is_bound = session.bindings.get(binding.service.name) is binding
            return binding.recovery is recovery and is_bound and session.status in LIVE

        if contenders:
            await self._end_contention(binding.service.name, contenders)
        attempt_from = self._core.clock.now()
        await save_quietly(session, [binding.record])
        if not backoff:
            return
        try:
            for wait in backoff:
                await self._core.clock.sleep_until(attempt_from + wait)
                if not is_due():
                    return
                if binding.losses > len(backoff) or await self._attempt(session, binding, wait):
                    break
                attempt_from = self._core.clock.now()
            if not is_due():
                return
        finally:
            if binding.recovery is recovery:
                binding.end_recovery()
        await self._give_up(session, binding)

    async def _end_contention(self, service: str, contenders: Collection[str]) -> None:
        logger.warning(
            'service %s: sessions %s end each other\'s processes in turns and are paused; scope = "shared" in '
            "[services.%s] makes them use one",
            service,
            ", ".join(sorted(contenders)),
            service,
        )
        await self._pausing.pause_contenders(contenders, service)

    async def _attempt(self, session: LiveSession, binding: Binding, spacing: float) -> bool:
        """Try to open the connection, and return whether it is open.

        Nothing is locked meanwhile: opening may take long, and the session may be renamed, restarted or closed.
        """
        name = binding.service.name
        try:
            await self._connector.connect(session, binding, spacing=spacing)
        except (SessionError, StoreUnavailable) as error:
            logger.warning(
                "session %s: %s not open yet: %s", session.id, name, one_line(str(error))
            )
            return False
        except Exception:
            logger.exception("session %s: %s not open yet", session.id, name)
            return False
        return True

    async def _give_up(self, session: LiveSession, binding: Binding) -> None:
        """Leave a connection that could not be opened again to the next call. The service may have the session closed.

        A session without any open connection is paused, as soon as no call of it tries to open one.
        """
        if binding.service.on_lost == "close":
            await self._closing.close(session, Event.CLOSE_REQUESTED, reason="error")
            return
        session.record.reason = reason = lost_reason(session.bindings.values())
        await save_quietly(session, [binding.record], reason=reason)
        while session.status is Status.ERROR and session.in_flight:
            await session.quiet.wait()
        async with session.changing:
            is_over = not any(each.recovery for each in session.bindings.values())
            if session.status is not Status.ERROR or session.in_flight or not is_over:
                return
            try:
                with anyio.CancelScope(shield=True):
                    cause = PauseCause(reason or "a connection was lost")
                    await self._pausing.pause_lost(session, cause, Event.RECOVERY_FAILED)
            except StoreUnavailable as error:
                logger.error("session %s was not paused: %s", session.id, error)
