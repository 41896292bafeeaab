"""Resolves names in a few daemon threads, which the process does not wait for when it ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

import anyio

from ....sessions.clock import Clock
from ....sessions.owned_map import OwnedMap
from .addresses import LOOPBACK, IPAddress, unmap
from .bandwidth import TrafficQuota

Lookup = Callable[[str], Sequence[str]]
"""Returns the addresses of a name, or raises OSError. Called in a thread."""

_MAX_CACHED_NAMES: Final = 2000


def is_loopback(name: str) -> bool:
    """Return whether browsers take a name for loopback without a lookup; resolvers often do not know such names."""
    return name == "localhost" or name.endswith(".localhost")


class NotFound(Exception):
    """Raised when a name has no address, or no answer came in time."""


class _Pending:
    """One lookup under way; any number of callers may wait for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.was_sent = False
        self.addresses: tuple[IPAddress, ...] = ()


class Resolver:
    """Resolves names. It runs one lookup of a name at a time per owner, and caches answers for all for a few seconds.

    `absent_seconds`: those for which a name without an address is not looked up again.

    After a cancelled or late call the thread runs until the system's resolver gives up; `at_once` counts such threads too.
    The threads are divided among owners: names without an answer delay only other names of the same owner.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seconds: float = 10.0,
        keep_seconds: float = 10.0,
        absent_seconds: float = 0.0,
        at_once: int = 64,
        lookup: Lookup | None = None,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._cache_seconds = keep_seconds
        self._absent_seconds = absent_seconds
        self._threads = TrafficQuota(at_once)
        self._thread_end = anyio.Event()
        """Set, and replaced, when a thread has ended."""
        self._lookup = lookup or _system
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._cache = OwnedMap[str, tuple[float, tuple[IPAddress, ...]]](_MAX_CACHED_NAMES)

    async def addresses(self, name: str, owner: str = "") -> tuple[IPAddress, ...]:
        """Return all addresses of a name, in the system's order of preference.

        Raises:
            NotFound: There is none.
        """
        if is_loopback(name):
            return LOOPBACK
        until, addresses = self._cache.get(name) or (0.0, ())
        if until <= self._clock.now():
            addresses = await self._ask(name, owner)
        if not addresses:
            raise NotFound(name)
        return addresses

    async def _ask(self, name: str, owner: str) -> tuple[IPAddress, ...]:
        with anyio.move_on_after(self._seconds):
            while True:
                pending = self._pending.get((owner, name)) or await self._start(name, owner)
                await pending.done.wait()
                if pending.was_sent:
                    return pending.addresses
        return ()

    async def _start(self, name: str, owner: str) -> _Pending:
        pending = self._pending[owner, name] = _Pending()
        try:
            while self._threads.is_full(owner):
                await self._thread_end.wait()
            self._threads.take(owner)
            pending.was_sent = True
        except BaseException:
            # Other waiters start the lookup anew.
            del self._pending[owner, name]
            pending.done.set()
            raise
        loop = asyncio.get_running_loop()

        def look_up() -> None:
            texts: Sequence[str] = ()
            with suppress(OSError, UnicodeError):
                texts = self._lookup(name)
            with suppress(RuntimeError):  # the loop is closed, so there are no waiters
                loop.call_soon_threadsafe(self._finish, name, owner, pending, texts)

        try:
            threading.Thread(target=look_up, name="statehold-resolver", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self._finish(name, owner, pending, ())
        return pending

    def _finish(self, name: str, owner: str, pending: _Pending, texts: Sequence[str]) -> None:
        self._threads.release(owner)
        thread_end, self._thread_end = self._thread_end, anyio.Event()
        thread_end.set()
        # A malformed address must not leave the lookup pending.
        with suppress(ValueError):
            pending.addresses = tuple(unmap(ip_address(text.partition("%")[0])) for text in texts)
        if self._pending.get((owner, name)) is pending:
            del self._pending[owner, name]
        seconds = self._cache_seconds if pending.addresses else self._absent_seconds
        if seconds:
            self._cache.put(owner, name, (self._clock.now() + seconds, pending.addresses))
        pending.done.set()


def _system(name: str) -> Sequence[str]:
    infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))
