"""The current session of a task or thread; there is none of the process."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(slots=True, eq=False)
class CurrentEntry(Generic[S]):
    """One block that was entered. `is_left` marks a block that was left, in every context that still holds the entry."""

    scope: object
    session: S
    is_left: bool = False


class Current(Generic[S]):
    """The sessions of the blocks around the running code, the innermost last.

    A context variable holds them, so a task that is started inside of a block has that block's session, and another
    task, or thread, never sees it.
    """

    def __init__(self, name: str) -> None:
        self._inside: ContextVar[tuple[CurrentEntry[S], ...]] = ContextVar(name, default=())

    def enter(self, scope: object, session: S) -> CurrentEntry[S]:
        """Make it the current session of `scope`; return the entry for leave()."""
        entry = CurrentEntry(scope, session)
        self._inside.set((*self._inside.get(), entry))
        return entry

    def leave(self, entry: CurrentEntry[S]) -> None:
        """End an entry, also in another context, or before the end of a block that was entered later."""
        # Not with a token, which works in the context of enter() only: fixtures and exit stacks leave in other contexts.
        entry.is_left = True
        self._inside.set(tuple(each for each in self._inside.get() if not each.is_left))

    def find(self, scope: object) -> S | None:
        """Return the innermost session of a scope."""
        for entry in reversed(self._inside.get()):
            if entry.scope == scope and not entry.is_left:
                return entry.session
        return None


__all__ = ["Current", "CurrentEntry"]
