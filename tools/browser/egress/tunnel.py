"""A tunnel: bytes in both directions between a browser and a site. Only their number is known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
from anyio.abc import SocketStream

from ....sessions.clock import Clock
from .access import EgressAccess
from .streams import BROKEN, send_end

LINGER_SECONDS: Final = 60.0
"""Seconds for which one direction of a tunnel may be silent after the other has ended."""

QUIET_SECONDS: Final = 5.0
"""Seconds of silence after which arriving bytes count as a new response; the contents of a tunnel are not visible."""


Rewrite: TypeAlias = Callable[[bytes], bytes]
"""Returns the bytes for the site that follow from the next bytes of the browser."""


class Overfull(Exception):
    """Raised when a response is larger than the policy allows."""


class Tunnel:
    """Carries bytes until both sides have ended, one breaks, or run() is cancelled. It closes neither stream."""

    def __init__(
        self,
        near: SocketStream,
        far: SocketStream,
        access: EgressAccess,
        clock: Clock,
        rewrite: Rewrite | None = None,
    ) -> None:
        """`rewrite` changes the bytes to the site."""
        self._near = near
        self._far = far
        self._access = access
        self._clock = clock
        self._rewrite = rewrite
        self._half_closed = False
        self._response_bytes = 0
        self._last = 0.0
        self._overfull = False
        self._broken = False
        self._scope = anyio.CancelScope()

    async def run(self, *, to_site: bytes = b"", to_browser: bytes = b"") -> bool:
        """Carry bytes until the end, after those given here. Return whether both sides ended of their own accord.

        Raises:
            Overfull: The site sent too much.
        """
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(self._carry_direction, self._near, self._far, to_site)
            tasks.start_soon(self._carry_direction, self._far, self._near, to_browser)
        if self._overfull:
            raise Overfull
        return not self._broken

    async def _carry_direction(
        self, source: SocketStream, sink: SocketStream, first_bytes: bytes
    ) -> None:
        to_browser = source is self._far
        piece = self._access.bandwidth.piece
        try:
            if first_bytes:
                await self._carry(first_bytes, sink, to_browser=to_browser)
            with suppress(anyio.EndOfStream):
                while True:
                    await self._carry(await source.receive(piece), sink, to_browser=to_browser)
            await send_end(sink)
            self._half_closed = True
            self._scope.deadline = anyio.current_time() + LINGER_SECONDS
        except Overfull:
            self._overfull = True
            self._scope.cancel()
        except BROKEN:
            self._broken = True
            self._scope.cancel()

    async def _carry(self, data: bytes, sink: SocketStream, *, to_browser: bool) -> None:
        if self._rewrite is not None and not to_browser and not (data := self._rewrite(data)):
            return
        await self._access.bandwidth.take(len(data))
        if self._half_closed:
            self._scope.deadline = anyio.current_time() + LINGER_SECONDS
        if to_browser:
            self._count(len(data))
        else:
            self._access.bytes_sent += len(data)
        await sink.send(data)

    def _count(self, count: int) -> None:
        self._access.bytes_received += count
        limit = self._access.policy.response_bytes
        if limit is None:
            return
        now = self._clock.now()
        if now - self._last > QUIET_SECONDS:
            self._response_bytes = 0
        self._last = now
        self._response_bytes += count
        if self._response_bytes > limit:
            raise Overfull
