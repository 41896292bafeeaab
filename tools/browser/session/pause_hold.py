"""Activities that run in a session until they are stopped, such as a trace. The session is not paused meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

MAX_SECONDS: Final = 1800.0
"""Seconds after which a hold ends by itself: a held session is never paused, and its recording grows."""


class PauseHold:
    """An activity that keeps a session from being paused from begin() to end(). `expire` is called after `seconds`."""

    def __init__(
        self,
        what: str,
        holds: set[str],
        *,
        spawn: Callable[..., None],
        expire: Callable[[], Awaitable[None]],
        seconds: float = MAX_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.what = what
        self.seconds = seconds
        self._holds = holds
        self._spawn = spawn
        self._expire = expire
        self._sleep = sleep
        self._waiting: anyio.CancelScope | None = None

    @property
    def is_active(self) -> bool:
        """Whether the session is kept from being paused now."""
        return self._waiting is not None

    def begin(self) -> None:
        """Hold the session from now on. If it is already held, the time starts anew."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = anyio.CancelScope()
        self._holds.add(self.what)
        self._spawn(self._wait, self._waiting)

    def end(self) -> None:
        """Release the session. May be called twice."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._holds.discard(self.what)

    async def _wait(self, waiting: anyio.CancelScope) -> None:
        with waiting:
            await self._sleep(self.seconds)
        if self._waiting is waiting:
            await self._expire()
