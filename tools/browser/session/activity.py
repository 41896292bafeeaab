"""The activity of a page's scripts during an action: the timers, frames, animations and messages that are still to come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..devtools.world import World

if TYPE_CHECKING:
    from playwright.async_api import Error

SOURCE: Final = (Path(__file__).parent / "activity.js").read_text("utf-8")
_STALE: Final = ("Could not find object", "Cannot find context")
"""Parts of the errors about an object of a document that is gone. The function was not called."""


class Rest(NamedTuple):
    """The state of a page after some waiting."""

    is_over: bool
    """Whether the page rests, or the time is over."""
    is_unchanged: bool
    """Whether the page did not change while it was waited for."""
    title: object
    """The title that the page reports; pages may report a value that is no string."""
    is_busy: bool
    """Whether the page went on changing or setting timers at the end; told once in a document."""
    gone_messages: list[str]
    """Texts of live regions, such as toasts, that the page showed meanwhile and no longer shows."""
    has_ended: bool
    """Whether the page is already without the hook."""
    downloads: bool
    """Whether a link with `download` was clicked, by which no request of the page begins."""


class Activity:
    """The access to a script that follows the activity of a page.

    With `hooked`, the script replaces functions such as setTimeout by ones that also count, from begin() to end(). The
    script is installed in a document on first use; the page has no name for it, only DevTools has.
    """

    def __init__(self) -> None:
        self._script: str | None = None

    async def begin(self, world: World) -> None:
        """Begin to count what is started from now on, just before an action.

        Raises:
            WorldError: The page threw.
            playwright's Error: The page navigated, or is gone.
        """
        await self._call(world, "begin(true)")

    async def rest(
        self, world: World, *, hooked: bool, again: bool, active: bool, most: int, seconds: float
    ) -> Rest:
        """Wait until the page rests, but not longer than a slice of time. Then call it `again`.

        The page rests when nothing is pending and it did not change for a moment; the moment is longer if it was `active`.
        At most `most` elements are looked at.

        Raises:
            WorldError: The page threw.
            playwright's Error: The page navigated, or is gone.
        """
        options = {"hooked": hooked, "again": again, "active": active, "most": most}
        options_json = json.dumps({**options, "left": seconds * 1000})
        return Rest(*await self._call(world, f"rest({options_json})"))

    async def end(self, world: World) -> None:
        """Give the page its own functions back.

        Raises:
            WorldError: The page threw.
            playwright's Error: The page navigated, or is gone.
        """
        from playwright.async_api import Error

        if self._script is not None:
            try:
                await world.call_on(self._script, _method("end()"))
            except Error as error:
                # A new document has no hook.
                if not _is_stale(error):
                    raise

    async def _call(self, world: World, call: str) -> Any:
        from playwright.async_api import Error

        if self._script is not None:
            try:
                return await world.call_on(self._script, _method(call))
            except Error as error:
                if not _is_stale(error):
                    raise
        self._script = await world.evaluate_object(SOURCE)
        return await world.call_on(self._script, _method(call))


def _method(call: str) -> str:
    return f"function() {{ return this.{call}; }}"


def _is_stale(error: Error) -> bool:
    return any(part in error.message for part in _STALE)


__all__ = ["SOURCE", "Activity", "Rest"]
