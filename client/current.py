"""Which session is the current one: of this task or thread, never of the process."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Generic, TypeVar

S = TypeVar("S")


class Current(Generic[S]):
    """The sessions of the blocks around the running code, the innermost last.

    A context variable holds them, so a task that is started inside of a block has that block's session, and another
    task, or thread, never sees it.
    """

    def __init__(self, name: str) -> None:
        self._inside: ContextVar[tuple[tuple[object, S], ...]] = ContextVar(name, default=())

    def enter(self, scope: object, session: S) -> tuple[tuple[object, S], ...]:
        """Make it the current session of `scope`; return what leave() needs."""
        outer = self._inside.get()
        self._inside.set((*outer, (scope, session)))
        return outer

    def leave(self, outer: tuple[tuple[object, S], ...]) -> None:
        # Not by a token, which could be used in the very same context only: fixtures and exit stacks leave elsewhere.
        self._inside.set(outer)

    def find(self, scope: object) -> S | None:
        """Return the innermost session of a scope."""
        for owner, session in reversed(self._inside.get()):
            if owner == scope:
                return session
        return None


__all__ = ["Current"]
