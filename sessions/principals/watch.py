"""The policies of the store, read again when they change, and the groups of callers, written when they change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio

from ..errors import StoreUnavailable
from ..records import NodeState, Principal
from .rules import Membership, PolicyTarget

if TYPE_CHECKING:
    from ..core import Core

logger = logging.getLogger("statehold.sessions")

LOOK_SECONDS: Final = 0.5
"""Seconds after which the store is asked for changes again."""
WRITE_SECONDS: Final = 5.0
"""Shortest time between two writes of the groups of one principal, whose tokens may differ."""


class PolicyWatch:
    """Keeps the limits of one process up to date. It lives as long as the registry.

    While the store is down, the former policies hold.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._version = 0
        self._written_at: dict[str, float] = {}
        self._unwritten: set[str] = set()
        """The principals whose groups are to be written."""
        self._is_down = False

    async def refresh(self) -> None:
        """Take over what has changed in the store.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        core, limits = self._core, self._core.limits
        records = await core.store.access.changed_principals(self._version)
        if records:
            self._version = max(record.version for record in records)
            limits.update(records, unwritten=self._unwritten)
        if limits.is_active:
            nodes = await core.store.nodes()
            limits.nodes = max(1, sum(node.state is NodeState.UP for node in nodes))

    async def run(self, look: Callable[[], Awaitable[None]]) -> None:
        """Look for changes until cancelled, and call `look` each time."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                await look()
                await self.refresh()
                self._is_down = False
            except StoreUnavailable as error:
                if not self._is_down:
                    logger.warning("the former policies and revocations hold: %s", error)
                self._is_down = True
            except Exception:
                # A failure of this task would end the process.
                logger.exception("the former policies and revocations hold")

    def note_caller(self, principal: Principal, membership: Membership) -> None:
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
