"""The rights that other processes change in the store: revocations, and the groups of callers."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import anyio

from ..errors import StoreUnavailable
from ..records import NodeState, Principal
from .rules import Membership, PolicyRule, PolicyTarget

if TYPE_CHECKING:
    from ..core import Core

logger = logging.getLogger("statehold.sessions")

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at the store while this process is used."""
IDLE_SECONDS: Final = 5.0
"""Seconds without use after which a process is idle, and seconds between its looks while it has sessions."""
WRITE_SECONDS: Final = 5.0
"""Shortest time between two writes of the groups of one principal, whose tokens may differ."""


class PolicyWatch:
    """Keeps the rights of the callers of one process up to date. It lives as long as the registry.

    `look` takes over the revocations of the store. An idle process that has no session reads nothing: be_current() reads
    before its next request. While the store is down, the former policies and revocations hold.
    """

    def __init__(self, core: Core, look: Callable[[], Awaitable[None]]) -> None:
        self._core = core
        self._look = look
        self._version = 0
        self._written_at: dict[str, float] = {}
        self._unwritten: set[str] = set()
        """The principals whose groups are to be written."""
        self._is_down = False
        self._has_read = False
        self._looking = anyio.Lock()
        self._looked_at = self._used_at = -math.inf
        """Times of the event loop."""
        self._use = anyio.Event()
        """Set by the next use."""

    def configure(self, rules: Iterable[PolicyRule]) -> None:
        """Use these policies of the configuration in place of the former ones."""
        self._core.limits.configure(rules)
        self._looked_at = -math.inf
        self.record_use()

    def record_use(self) -> None:
        """Look often from now on: a request came, or a stream is open."""
        self._used_at = anyio.current_time()
        self._use.set()

    async def be_current(self) -> None:
        """Return when the rights are those of a moment ago. A request waits for it before its token is checked."""
        self.record_use()
        called_at = self._used_at
        if called_at - self._looked_at > 2 * LOOK_SECONDS:
            async with self._looking:
                if self._looked_at < called_at:
                    await self._look_once()

    async def refresh(self) -> None:
        """Take over the groups that have changed in the store, if a policy may need them.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        core, limits = self._core, self._core.limits
        if self._has_read and not limits.is_active:
            return
        records = await core.store.access.changed_principals(self._version)
        self._has_read = True
        for record in records:
            if record.policy:
                words = record.target.words
                logger.warning(
                    "stored limits of %s belong in [[policies]]: %s", words, record.policy
                )
        if records:
            self._version = max(record.version for record in records)
            limits.update(records, unwritten=self._unwritten)
        nodes = await core.store.nodes()
        limits.nodes = max(1, sum(node.state is NodeState.UP for node in nodes))

    async def run(self, in_flight: Callable[[], int | None]) -> None:
        """Look for changes until cancelled. `in_flight`: the calls that run in open sessions, None if none is open."""
        while True:
            calls = in_flight()
            if calls or anyio.current_time() - self._used_at < IDLE_SECONDS:
                await anyio.sleep(LOOK_SECONDS)
            else:
                self._use = anyio.Event()
                with anyio.move_on_after(math.inf if calls is None else IDLE_SECONDS):
                    await self._use.wait()
            async with self._looking:
                await self._look_once()

    async def _look_once(self) -> None:
        try:
            await self._look()
            await self.refresh()
            self._is_down = False
        except StoreUnavailable as error:
            if not self._is_down:
                logger.warning("the former policies and revocations hold: %s", error)
            self._is_down = True
        except Exception:
            # A failure of this task would end the process.
            logger.exception("the former policies and revocations hold")
        finally:
            self._looked_at = anyio.current_time()

    def record_caller(self, principal: Principal, membership: Membership) -> None:
        """Use the groups and the role of a caller whose token was verified, and tell other processes of new ones."""
        key = principal.key
        is_new = self._core.limits.learn(key, membership, self._core.clock.now())
        if is_new and key not in self._unwritten:
            self._unwritten.add(key)
            self._core.tasks.spawn(self._write, principal)

    async def _write(self, principal: Principal) -> None:
        """Write the groups of a principal until the store has those that are known now."""
        core, key = self._core, principal.key
        target, written = PolicyTarget.principal(principal), None
        while core.limits.membership(key) != written:
            await core.clock.sleep_until(self._written_at.get(key, 0.0) + WRITE_SECONDS)
            now, written = core.clock.now(), core.limits.membership(key)
            self._written_at[key] = now
            try:
                await core.store.access.put_membership(target, written, now)
            except StoreUnavailable:
                written = None
        self._unwritten.discard(key)
