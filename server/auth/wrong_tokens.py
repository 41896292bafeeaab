"""Requests with a wrong token: logged, and answered with a delay."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from .refusal_log import RefusalLog

FIRST_SECONDS: Final = 0.05
"""Seconds by which the answer to the first wrong token of an address is delayed. Each further one doubles the delay."""
LONGEST_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
"""Seconds without a wrong token after which the delay of an address starts anew."""
ADDRESSES: Final = 4096
WRONG: Final = "wrong token"


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

    async def fail(
        self, address: str, kind: str = WRONG, detail: str = "", *, is_delayed: bool = True
    ) -> None:
        """Log a wrong token, and wait for the delay of its answer. `is_delayed`: the token might have been guessed."""
        self._refusals.add(kind, address, detail)
        if not is_delayed:
            return
        now = self._clock()
        count, last = self._failures.pop(address, (0, now))
        count = 0 if now - last >= FORGET_SECONDS else count
        if len(self._failures) >= ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1, now)
        await self._sleep(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count, 10)))


def is_guessable(token: str) -> bool:
    """Whether a token might have been guessed. The signature of one with three parts cannot be."""
    return token.count(".") != 2


__all__ = ["WRONG", "Backoff", "is_guessable"]
