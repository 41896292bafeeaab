"""The hand-over of a call: from then on it is an operation in the store, which goes on without the request that began it.

A call that ends in time is never handed over and writes nothing more than any call. One that takes longer is offered as
soon as it is sent, and taken by whoever waits for it; its receipt is written at that moment.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ..concurrency import LazyEvent
from ..errors import SessionError, StoreUnavailable
from .open_work import OpenWork

logger = logging.getLogger("statehold.sessions")

OPEN_SECONDS: Final = 86_400.0
"""Seconds that a call may run once it is handed over, the time of questions included."""
KEPT_SECONDS: Final = 86_400.0
"""Seconds after its end for which the receipt of such a call is kept, if it expires."""


def new_operation_id() -> str:
    """Return an id that nobody can guess, for a call whose caller chose none."""
    return f"task-{secrets.token_urlsafe(18)}"


class HandOver:
    """The hand-over of one call. It lives as long as the call, and happens at most once."""

    def __init__(
        self, operation_id: str | None, work: OpenWork | None = None, *, expires: bool = False
    ) -> None:
        """`operation_id` is the one that the caller chose, None if it is to be one of ours.

        The receipt of an id of ours expires; with `expires` that of the caller's does, too.
        """
        self.work = work
        self.is_ours = operation_id is None
        self.expires = self.is_ours or expires
        self.operation_id = operation_id or new_operation_id()
        self.is_taken = False
        self.began_at = 0.0
        """When the call began to run; known once it is taken."""
        self._record: Callable[[], Awaitable[None]] | None = None
        self._offered = LazyEvent()
        self.turn = anyio.Lock()
        """Held while it is taken, and while what its receipt says changes."""

    def offer(self, record: Callable[[], Awaitable[None]]) -> None:
        """Let the call be handed over from now on.

        `record` makes it durable and sets `began_at`, or raises SessionError or StoreUnavailable.
        """
        self._record = record
        self._offered.set()

    async def take(self) -> bool:
        """Wait until the call is offered, and hand it over. Return False if it has ended, or cannot be recorded.

        Not interrupted by cancellation once it writes.
        """
        await self._offered.wait()
        async with self.turn:
            if self.is_taken or self._record is None:
                return self.is_taken
            try:
                with anyio.CancelScope(shield=True):
                    await self._record()
            except (SessionError, StoreUnavailable) as error:
                logger.info("a call was not handed over: %s", error)
                self._record = None
                return False
            self.is_taken = True
            return True

    async def end(self) -> None:
        """Let nobody take the call any more: it has ended. A hand-over that has begun is completed first."""
        if self.turn.locked():
            with anyio.CancelScope(shield=True):
                async with self.turn:
                    pass
        self._record = None
        self._offered.set()
