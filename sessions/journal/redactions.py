"""Redaction that takes long, in threads: neither the event loop nor the writer of the store waits for it."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio import CapacityLimiter, to_thread

from .entries import CallEntry
from .redaction import Redactor

THREADS: Final = 2
SECONDS: Final = 5.0
"""Seconds that a call waits for the redaction of its entry. After them, its texts are left out of the journal."""
SMALL: Final = 2000
"""Characters of a text that is redacted at once."""


class Redactions:
    """Redacts for all principals, one value of each at a time. It has nothing to close."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._threads = CapacityLimiter(THREADS)
        self._turns = WeakValueDictionary[str, anyio.Lock]()
        """By principal; a lock lives while somebody holds it or waits for it."""

    async def redact(self, entry: CallEntry, owner: str) -> None:
        """Redact a large entry of a call of a principal. Cancellation does not interrupt it.

        A small entry is left as it is, to be redacted by the writer.
        """
        if entry.is_small():
            return
        with anyio.move_on_after(SECONDS, shield=True):
            async with self._turn(owner):
                await to_thread.run_sync(entry.redact, limiter=self._threads)
        entry.withhold()

    async def text(self, text: str, owner: str) -> str:
        """Return a text of a principal without secrets."""
        if len(text) <= SMALL:
            return self._redactor.text(text)
        async with self._turn(owner):
            return await to_thread.run_sync(self._redactor.text, text, limiter=self._threads)

    def _turn(self, owner: str) -> anyio.Lock:
        turn = self._turns.get(owner)
        if turn is None:
            turn = self._turns[owner] = anyio.Lock()
        return turn


__all__ = ["Redactions"]
