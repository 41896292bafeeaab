"""The state of a session, for programs that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import state
from ..results import StateValue


class State:
    """The state of one session, kept by the server. Values that are read are copies."""

    def __init__(self, inner: state.State, run: Callable[..., Any]) -> None:
        self._inner = inner
        self._run = run

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def version(self) -> int:
        """The last version seen here. Each change raises it by one."""
        return self._inner.version

    def read(self, path: str = "") -> StateValue:
        """Return the value at a path (a JSON pointer; default: all of the state), and the version of the state."""
        return self._run(self._inner.read, path)

    def get(self, path: str = "", default: Any = None) -> Any:
        """Return the value at a path, `default` when there is none."""
        return self._run(self._inner.get, path, default)

    def update(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Merge values into the state, or into the value at a path; None deletes. Return the new version.

        Raises:
            StateConflict: it is another version than `if_version`; nothing was changed.
            StateInvalid: it does not fit the schema of the session, or is too large.
        """
        return self._run(self._inner.update, values, if_version=if_version, path=path)

    def replace(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Replace the state, or the value at a path. Otherwise as update()."""
        return self._run(self._inner.replace, values, if_version=if_version, path=path)


__all__ = ["State"]
