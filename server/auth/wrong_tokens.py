"""Requests with a wrong token: logged, and answered with a delay."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from starlette.requests import HTTPConnection

logger = logging.getLogger("statehold.server")

FIRST_SECONDS: Final = 0.05
"""Seconds by which the answer to the first wrong token of an address is delayed. Each further one doubles the delay."""
LONGEST_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
"""Seconds without a wrong token after which the delay of an address starts anew."""
LOG_SECONDS: Final = 10.0
"""Seconds between two log lines about wrong tokens."""
ADDRESSES: Final = 4096


class Backoff:
    """The delays of answers to wrong tokens, by address. A right token is never delayed."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failures: dict[str, tuple[int, float]] = {}
        self._logged_at: float | None = None
        self._unlogged_count = 0

    async def fail(self, address: str) -> None:
        """Log a wrong token and wait for the delay of its answer."""
        now = self._clock()
        count, last = self._failures.pop(address, (0, now))
        count = 0 if now - last >= FORGET_SECONDS else count
        if len(self._failures) >= ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1, now)
        self._log(address, now)
        await self._sleep(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count, 10)))

    def _log(self, address: str, now: float) -> None:
        self._unlogged_count += 1
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            return
        more = f" ({self._unlogged_count} wrong tokens since the last such line)"
        logger.warning(
            "wrong token from %s%s", address or "?", more if self._unlogged_count > 1 else ""
        )
        self._logged_at, self._unlogged_count = now, 0


class SlowedBearerAuth(BearerAuthBackend):
    """The SDK's bearer authentication, which delays the answer to a wrong token."""

    def __init__(self, verifier: TokenVerifier, backoff: Backoff | None = None) -> None:
        super().__init__(verifier)
        self._backoff = backoff or Backoff()

    async def authenticate(self, conn: HTTPConnection):
        credentials = await super().authenticate(conn)
        if credentials is None and "authorization" in conn.headers:
            await self._backoff.fail(conn.client.host if conn.client else "")
        return credentials


__all__ = ["Backoff", "SlowedBearerAuth"]
