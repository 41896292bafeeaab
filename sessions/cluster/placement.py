"""The choice of the node that takes on a session without an owner."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_IS_PLACED: Final = ContextVar("_IS_PLACED", default=False)


@contextmanager
def place_here() -> Generator[None]:
    """Have this node take on the sessions that the block claims or creates, because another node chose it for them."""
    token = _IS_PLACED.set(True)
    try:
        yield
    finally:
        _IS_PLACED.reset(token)


__all__ = ["place_here"]
