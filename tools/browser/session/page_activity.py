"""The activity of a page's scripts during an action: the timers, frames, animations and messages that are still to come."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import anyio

from .. import errors
from ..devtools.world import World, origin_of

if TYPE_CHECKING:
    from playwright.async_api import Error, Frame, JSHandle, Page

SOURCE: Final = (Path(__file__).parent / "activity.js").read_text("utf-8")
ANSWER_SECONDS: Final = 0.5
MAX_FRAMES: Final = 8
"""The most frames of other sites that are waited for."""
MAX_ELEMENTS: Final = 2000
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
    copied: dict[str, str] | None
    """The texts that the page copied by a gesture, by their type."""
    picker: str
    """The function of the File System Access API by which the page asked for files."""


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

    async def copied(self, world: World, frames: int) -> dict[str, str] | None:
        """Return the texts that the page copied by a gesture since begin(), so many frames later, and end.

        Raises:
            WorldError: The page threw.
            playwright's Error: The page navigated, or is gone.
        """
        if self._script is None:
            return None
        return await world.call_on(self._script, _method(f"copied({frames})"))

    async def end(self, world: World) -> None:
        """Give the page its own functions back.

        Raises:
            WorldError: The page threw.
            playwright's Error: The page navigated, or is gone.
        """
        if self._script is not None:
            try:
                await world.call_on(self._script, _method("end()"))
            except errors.Error as error:
                # A new document has no hook.
                if not _is_stale(error):
                    raise

    async def _call(self, world: World, call: str) -> Any:
        if self._script is not None:
            try:
                return await world.call_on(self._script, _method(call))
            except errors.Error as error:
                if not _is_stale(error):
                    raise
        self._script = await world.evaluate_object(SOURCE)
        return await world.call_on(self._script, _method(call))


class FrameActivity:
    """The access to the same script in the frames of other sites in a page, which run in processes of their own.

    Only a frame that got input or a message since begin() is waited for. One that does not answer is left out from then on.
    Lives as long as the page.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._scripts: WeakKeyDictionary[Frame, JSHandle] = WeakKeyDictionary()
        self._silent: WeakSet[Frame] = WeakSet()
        self._watched: list[Frame] = []
        """The frames with the hook."""

    async def begin(self) -> None:
        """Begin to count, within ANSWER_SECONDS."""
        frames = [frame for frame in self._page.frames[1:] if _is_foreign(frame)]
        self._watched = [frame for frame in frames if frame not in self._silent][:MAX_FRAMES]
        answers = await self._ask("begin(true, true)")
        self._silent.update(set(self._watched) - answers.keys())
        self._watched = [*answers]

    async def rest(self, seconds: float) -> list[Rest]:
        """Wait until the frames rest, but not longer than `seconds`. One that got a message counts as changed."""
        again, end = False, anyio.current_time() + seconds
        frames, all_rests = self._watched, list[Rest]()
        try:
            while self._watched:
                left = max(0.0, end - anyio.current_time())
                options = {"hooked": True, "again": again, "active": False, "most": MAX_ELEMENTS}
                options_json = json.dumps({**options, "frame": True, "left": left * 1000})
                rests = {f: Rest(*r) for f, r in (await self._ask(f"rest({options_json})")).items()}
                all_rests += rests.values()
                again = True
                self._watched = [frame for frame, rest in rests.items() if not rest.is_over]
        finally:
            self._watched = frames
        return all_rests

    async def end(self) -> None:
        """Give the frames their own functions back."""
        await self._ask("end()")
        self._watched = []

    async def _ask(self, call: str) -> dict[Frame, Any]:
        """Call a method of the script in the watched frames; return the results of those that answered."""
        answers: dict[Frame, Any] = {}

        async def ask(frame: Frame) -> None:
            with anyio.move_on_after(ANSWER_SECONDS), suppress(errors.Error):
                script = self._scripts.get(frame)
                with suppress(errors.Error):
                    if script is not None:
                        answers[frame] = await script.evaluate(f"script => script.{call}")
                        return
                # A new document.
                self._scripts[frame] = script = await frame.evaluate_handle(SOURCE)
                answers[frame] = await script.evaluate(f"script => script.{call}")

        async with anyio.create_task_group() as tasks:
            for frame in self._watched:
                tasks.start_soon(ask, frame)
        return answers


def _is_foreign(frame: Frame) -> bool:
    origin, parent = origin_of(frame.url), frame.parent_frame
    return origin is not None and parent is not None and origin != origin_of(parent.url)


def _method(call: str) -> str:
    return f"function() {{ return this.{call}; }}"


def _is_stale(error: Error) -> bool:
    return any(part in error.message for part in _STALE)
