"""The state of a session, for programs that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import state
from ..results import StateValue


class State:
    """The state of one session, kept by the server. What is read is a copy: changing it changes nothing."""

    def __init__(self, inner: state.State, run: Callable[..., Any]) -> None:
        self._inner = inner
        self._run = run

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def version(self) -> int:
        """The version that was seen last. Each change makes it one more."""
        return self._inner.version

    def read(self, path: str = "") -> StateValue:
        """Return what is at a place (a JSON pointer, all of it by default), and its version."""
        return self._run(self._inner.read, path)

    def get(self, path: str = "", default: Any = None) -> Any:
        """Return what is at a place, `default` when nothing is."""
        return self._run(self._inner.get, path, default)

    def update(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Merge values into the state, or into one place of it; None deletes. Return the new version.

        Raises:
            StateConflict: it is another version than `if_version`; nothing was changed.
            StateInvalid: it does not fit the schema of the session, or is too large.
        """
        return self._run(self._inner.update, values, if_version=if_version, path=path)

    def replace(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Put values in the place of all that is there. Otherwise as update()."""
        return self._run(self._inner.replace, values, if_version=if_version, path=path)


__all__ = ["State"]
