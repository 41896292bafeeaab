"""The state of a session: the JSON object that it carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .results import JSON, StateValue, taken

if TYPE_CHECKING:
    from .session import Session


class State:
    """The state of one session, kept by the server. What is read is a copy: changing it changes nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.version: int = 0
        """The version that was seen last. Each change makes it one more."""

    def __repr__(self) -> str:
        return f"<State of {self._session.id} version={self.version}>"

    async def read(self, path: str = "") -> StateValue:
        """Return what is at a place (a JSON pointer, all of it by default), and its version."""
        given: JSON = {"path": path} if path else {}
        found = taken(StateValue, await self._session.own("state_get", given))
        self.version = found.version
        return found

    async def get(self, path: str = "", default: Any = None) -> Any:
        """Return what is at a place, `default` when nothing is."""
        found = await self.read(path)
        return found.value if found.found else default

    async def update(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Merge values into the state, or into one place of it; None deletes. Return the new version.

        Raises:
            StateConflict: it is another version than `if_version`; nothing was changed.
            StateInvalid: it does not fit the schema of the session, or is too large.
        """
        return await self._change("merge", values, if_version, path)

    async def replace(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Put values in the place of all that is there. Otherwise as update()."""
        return await self._change("replace", values, if_version, path)

    async def _change(self, mode: str, values: Any, if_version: int | None, path: str) -> int:
        given: JSON = {"values": dict(values) if isinstance(values, Mapping) else values}  # pyright: ignore[reportUnknownArgumentType]
        given["mode"] = mode
        if if_version is not None:
            given["if_version"] = if_version
        if path:
            given["path"] = path
        found = await self._session.own("state_update", given)
        self.version = found["version"]
        return self.version


__all__ = ["State"]
