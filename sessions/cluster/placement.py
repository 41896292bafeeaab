"""The choice of the node that takes on a session without an owner."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ..records import NodeRecord

CROWDED: Final = 1.25
"""A node that owns this many times the mean of all nodes is crowded."""
SLACK: Final = 2
"""Sessions above that which a node may own all the same: with few sessions the mean says little."""

_IS_PLACED: Final = ContextVar("_IS_PLACED", default=False)


@contextmanager
def place_here() -> Generator[None]:
    """Have this node take on the sessions that the block claims or creates, because another node chose it for them."""
    token = _IS_PLACED.set(True)
    try:
        yield
    finally:
        _IS_PLACED.reset(token)


def is_placed_here() -> bool:
    """Whether the running task is in a block of place_here()."""
    return _IS_PLACED.get()


def excess(sessions: int, others: Iterable[NodeRecord]) -> int:
    """Return how many sessions a node has more than a node may have in view of the others that are up, at least 0."""
    counts = [sessions, *(record.sessions for record in others if record.capacity)]
    return max(0, math.ceil(sessions - CROWDED * sum(counts) / len(counts) - SLACK))


def choose_node(
    sessions: int, capacity: int, others: Iterable[NodeRecord], *, is_draining: bool = False
) -> NodeRecord | None:
    """Return the other node that is to take on one more session, None when this one is to.

    A node with a capacity of 0 takes on none. When all are full, the one with the most room left does.
    """
    candidates = [record for record in others if record.capacity]
    best = max(candidates, key=_room, default=None)
    if best is None or is_draining or not capacity:
        return best
    if sessions < capacity and not excess(sessions, candidates):
        return None
    return best if _room(best) > capacity - sessions else None


def _room(record: NodeRecord) -> int:
    return record.capacity - record.sessions
