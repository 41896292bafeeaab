"""Requests with a wrong token: logged, and answered with a delay."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from starlette.requests import HTTPConnection

from .refusal_log import RefusalLog

FIRST_SECONDS: Final = 0.05
"""Seconds by which the answer to the first wrong token of an address is delayed. Each further one doubles the delay."""
LONGEST_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
"""Seconds without a wrong token after which the delay of an address starts anew."""
ADDRESSES: Final = 4096
WRONG: Final = "wrong token"


class TokenChecker(TokenVerifier, Protocol):
    """A TokenVerifier that gives the reason of a refusal."""

    def refusal(self, token: str) -> tuple[str, str]:
        """Return the kind of a token that was refused, and a detail, for the log."""
        ...


class Backoff:
    """The delays of answers to wrong tokens, by address. A right token is never delayed."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failures: dict[str, tuple[int, float]] = {}
        self._refusals = RefusalLog(clock)

    async def fail(self, address: str, kind: str = WRONG, detail: str = "") -> None:
        """Log a wrong token and wait for the delay of its answer."""
        now = self._clock()
        count, last = self._failures.pop(address, (0, now))
        count = 0 if now - last >= FORGET_SECONDS else count
        if len(self._failures) >= ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1, now)
        self._refusals.add(kind, address, detail)
        await self._sleep(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count, 10)))


class SlowedBearerAuth(BearerAuthBackend):
    """The SDK's bearer authentication, which delays the answer to a wrong token."""

    def __init__(self, checker: TokenChecker, backoff: Backoff | None = None) -> None:
        super().__init__(checker)
        self._checker = checker
        self._backoff = backoff or Backoff()

    async def authenticate(self, conn: HTTPConnection):
        credentials = await super().authenticate(conn)
        header = conn.headers.get("authorization")
        if credentials is None and header is not None:
            address = conn.client.host if conn.client else ""
            _, _, token = header.partition(" ")
            await self._backoff.fail(address, *self._checker.refusal(token))
        return credentials


__all__ = ["WRONG", "Backoff", "SlowedBearerAuth", "TokenChecker"]
