"""The state of a session: the JSON object that it carries."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from ..tools.own.results import StateValue, parse_result
from .errors import StateConflict
from .protocol.retry import RetryPolicy

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON

CONFLICTS: Final = RetryPolicy(spread=1.0)
"""The pauses after conflicts are random, so that programs that collided do not try again at once."""


class OwnToolCaller(Protocol):
    """Calls Statehold's own tools about one session."""

    @property
    def id(self) -> str: ...

    async def call_own(self, tool: str, arguments: Mapping[str, Any] | None = None) -> JSON:
        """Call a tool about this session, and return its structured content."""
        ...


class State:
    """The state of one session, kept by the server. Values that are read are copies."""

    version: int
    """The last version seen here. Each change raises it by one."""

    def __init__(self, session: OwnToolCaller) -> None:
        self._session = session
        self.version = 0

    def __repr__(self) -> str:
        return f"<State of {self._session.id} version={self.version}>"

    async def read(self, path: str = "") -> StateValue:
        """Return the value at a path (a JSON pointer; default: all of the state), and the version of the state."""
        answer = await self._session.call_own("state_get", {"path": path} if path else {})
        value = parse_result(StateValue, answer)
        self.version = value.version
        return value

    async def get(self, path: str = "", default: Any = None) -> Any:
        """Return the value at a path, `default` when there is none."""
        entry = await self.read(path)
        return entry.value if entry.found else default

    async def update(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Merge values into the state, or into the value at a path; None deletes. Return the new version.

        Raises:
            StateConflict: it is another version than `if_version`; nothing was changed.
            StateInvalid: it does not fit the schema of the session, or is too large.
        """
        return await self._change("merge", values, if_version, path)

    async def replace(self, values: Any, *, if_version: int | None = None, path: str = "") -> int:
        """Replace the state, or the value at a path. Otherwise as update()."""
        return await self._change("replace", values, if_version, path)

    async def change(
        self, function: Callable[[Any], Any], path: str = "", *, default: Any = None
    ) -> StateValue:
        """Replace the value at a path by the result of a function of it, and return the new value and version.

        The function gets a copy of the value, `default` where there is none. It may change that instead, and return None. If
        another client changes the state meanwhile, the function is called again with the newer value.

        Raises:
            StateInvalid: the result does not fit the schema of the session, or is too large.
        """
        for attempt in count():
            current = await self.read(path)
            value = apply_change(function, current, default)
            try:
                version = await self.replace(value, if_version=current.version, path=path)
                return StateValue(True, value, version)
            except StateConflict:
                await anyio.sleep(CONFLICTS.pause(attempt))
        raise AssertionError

    async def _change(self, mode: str, values: Any, if_version: int | None, path: str) -> int:
        arguments: JSON = {"values": dict(values) if isinstance(values, Mapping) else values}  # pyright: ignore[reportUnknownArgumentType]
        arguments["mode"] = mode
        if if_version is not None:
            arguments["if_version"] = if_version
        if path:
            arguments["path"] = path
        answer = await self._session.call_own("state_update", arguments)
        self.version = answer["version"]
        return self.version


def apply_change(function: Callable[[Any], Any], current: StateValue, default: Any) -> Any:
    """Return the result of a function of a value, or the value if the function changed that in place."""
    value = current.value if current.found else copy.deepcopy(default)
    changed = function(value)
    if inspect.isawaitable(changed):
        if inspect.iscoroutine(changed):
            changed.close()
        raise TypeError("the function of state.change() must not be async: it may be called again")
    return value if changed is None else changed


__all__ = ["CONFLICTS", "OwnToolCaller", "State", "apply_change"]
