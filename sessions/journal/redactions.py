"""Redaction that takes long, in threads: neither the event loop nor the writer of the store waits for it."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio import CapacityLimiter, to_thread

from ..concurrency import BackgroundTasks
from .entries import SMALL, CallEntry
from .redaction import Redactor

THREADS: Final = 2
SECONDS: Final = 5.0
"""Seconds that a call waits for the redaction of its entry. After them, its texts are left out of the journal."""


class Redactions:
    """Redacts for all principals, one value of each at a time. It has nothing to close."""

    def __init__(self, redactor: Redactor, tasks: BackgroundTasks) -> None:
        self._redactor = redactor
        self._tasks = tasks
        self._threads = CapacityLimiter(THREADS)
        self._turns = WeakValueDictionary[str, anyio.Lock]()
        """By principal; a lock lives while somebody holds it or waits for it."""

    async def redact(self, entry: CallEntry, owner: str) -> None:
        """Redact a large entry of a call of a principal, within SECONDS. Cancellation does not interrupt it.

        A small entry is left as it is, to be redacted by the writer.
        """
        if entry.is_small():
            return
        if self._tasks.is_open:
            ended = anyio.Event()
            # A task of its own: a thread that is late keeps its place, and the turn of its principal, until it ends.
            self._tasks.spawn(self._redact, entry, owner, ended)
            with anyio.move_on_after(SECONDS, shield=True):
                await ended.wait()
        entry.withhold()

    async def _redact(self, entry: CallEntry, owner: str, ended: anyio.Event) -> None:
        try:
            async with self._turn(owner):
                if not entry.is_small():
                    await to_thread.run_sync(entry.redact, limiter=self._threads)
        finally:
            ended.set()

    async def prose(self, text: str, owner: str) -> str:
        """Return a text that a principal wrote without secrets, see Redactor.prose."""
        if len(text) <= SMALL:
            return self._redactor.prose(text)
        async with self._turn(owner):
            return await to_thread.run_sync(self._redactor.prose, text, limiter=self._threads)

    def _turn(self, owner: str) -> anyio.Lock:
        turn = self._turns.get(owner)
        if turn is None:
            turn = self._turns[owner] = anyio.Lock()
        return turn


__all__ = ["Redactions"]
