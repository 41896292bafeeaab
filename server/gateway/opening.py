"""The moment at which a gateway opens its sessions."""

from __future__ import annotations

from typing import Final

import anyio

from ...sessions.errors import ServiceUnavailable

METHODS_BEFORE_OPENING: Final = frozenset(
    {"initialize", "server/discover", "ping", "logging/setLevel", "tools/list"}
)
"""Requests that are answered before the sessions are open."""


class GatewayOpening:
    """Whether the sessions of a gateway are open, and whether they are needed already.

    A process over stdio answers the first list of its tools before it opens its sessions.
    """

    def __init__(self) -> None:
        self._requested = anyio.Event()
        self._ended = anyio.Event()
        self._problem: str | None = None

    @property
    def is_complete(self) -> bool:
        return self._ended.is_set() and self._problem is None

    def delays(self, method: str) -> bool:
        """Whether a request has to wait() for the sessions, or is refused there because they cannot be opened."""
        if self._ended.is_set():
            return self._problem is not None
        return method not in METHODS_BEFORE_OPENING

    def request(self) -> None:
        """Have the sessions opened now, unless they are open."""
        self._requested.set()

    def complete(self) -> None:
        """Let the requests continue that wait for the sessions."""
        self._ended.set()

    def fail(self, problem: str) -> None:
        """Refuse the requests that wait for the sessions, and all later ones; the problem says why and what to do."""
        self._problem = problem
        self._ended.set()

    async def wait_requested(self) -> None:
        await self._requested.wait()

    async def wait(self) -> None:
        """Request the opening, and return when the sessions are open.

        Raises:
            ServiceUnavailable: they cannot be opened.
        """
        if not self._ended.is_set():
            self.request()
            await self._ended.wait()
        if self._problem is not None:
            raise ServiceUnavailable(self._problem, recovery="Then start this client again.")
