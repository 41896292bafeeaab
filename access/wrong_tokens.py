"""Requests with a wrong token: logged, and each further one of the same network is looked at later."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

import anyio

from ..sessions.owned_map import BoundedMap
from .refusal_log import RefusalLog

FIRST_SECONDS: Final = 0.05
"""Seconds that a network waits after its first wrong token. Each further one doubles them."""
LONGEST_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
"""Seconds without a wrong token after which the delay of a network starts anew."""
NETWORKS: Final = 4096
CACHED_ADDRESSES: Final = 1024
PREFIX: Final = 64
"""Bits of an IPv6 address that one client does not choose."""
WRONG: Final = "wrong token"


class Backoff:
    """The delays of networks that sent wrong tokens: before the next one is looked at, which may cost work elsewhere.

    A token that can be told right without that work is never delayed.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failures = BoundedMap[str, tuple[int, float]](NETWORKS)
        self._refusals = RefusalLog(clock)

    async def hold(self, address: str) -> None:
        """Wait for the delay of the network of an address."""
        count, last = self._failures.get(network_of(address), (0, 0.0))
        if count and self._clock() - last < FORGET_SECONDS:
            await self._sleep(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count - 1, 10)))

    def fail(
        self, address: str, kind: str = WRONG, detail: str = "", *, is_guessable: bool = True
    ) -> None:
        """Log a wrong token, and delay the network of an address more if the token might have been guessed."""
        self._refusals.add(kind, address, detail)
        if not is_guessable:
            return
        network, now = network_of(address), self._clock()
        count, last = self._failures.get(network, (0, now))
        count = 0 if now - last >= FORGET_SECONDS else count
        self._failures[network] = (count + 1, now)


@lru_cache(CACHED_ADDRESSES)
def network_of(address: str) -> str:
    """Return the network that stands for a client in shares of strangers: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((ip, PREFIX), strict=False))


def is_guessable(token: str) -> bool:
    """Whether a token might have been guessed. The signature of one with three parts cannot be."""
    return token.count(".") != 2
