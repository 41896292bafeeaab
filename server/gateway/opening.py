"""The moment at which a gateway opens its sessions."""

from __future__ import annotations

import anyio


class GatewayOpening:
    """Whether the sessions of a gateway are open, and whether they are needed already.

    A process over stdio answers the first list of its tools before it opens its sessions.
    """

    def __init__(self) -> None:
        self._requested = anyio.Event()
        self._completed = anyio.Event()

    @property
    def is_complete(self) -> bool:
        return self._completed.is_set()

    def request(self) -> None:
        """Have the sessions opened now, unless they are open."""
        self._requested.set()

    def complete(self) -> None:
        """Let the requests continue that wait for the sessions."""
        self._completed.set()

    async def wait_requested(self) -> None:
        await self._requested.wait()

    async def wait(self) -> None:
        """Request the opening, and return when the sessions are open. If that fails, the process ends."""
        if not self._completed.is_set():
            self.request()
            await self._completed.wait()


__all__ = ["GatewayOpening"]
