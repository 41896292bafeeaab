"""The recorder of one session: writes actions in its pages as Playwright's Python."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ..session.failures import ToolFailed
from ..session.pause_hold import PauseHold
from .steps import Seen, line_of, seen_of

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page, Request

    from ..process.sdk import AsyncContextManager

STEPS: Final = 2000
"""The most steps of a recording; the number of those left out is added as a comment."""
NAME_SECONDS: Final = 3.0
CAUSED_SECONDS: Final = 1.0
"""A navigation within so many seconds after a step counts as caused by it."""

_STOP: Final = "() => window.__stateholdRecorder && window.__stateholdRecorder()"
_LEAVE: Final = "() => { delete window.__stateholdRecorder; }"
_IS_IT: Final = "(element, number) => window.__stateholdRecorder(number, element)"


@cache
def _script() -> str:
    return (Path(__file__).parent / "recorder.js").read_text("utf-8")


@dataclass(slots=True)
class _Place:
    """An element, with the locator that its page gave for it, once asked."""

    guess: str
    locator: str | None = None
    asked: anyio.Event = field(default_factory=anyio.Event)
    """Set when the query to the page is over, successful or not."""


@dataclass(slots=True)
class _Line:
    page: str
    seen: Seen
    place: _Place

    def __str__(self) -> str:
        return line_of(self.page, self.seen, self.place.locator or self.place.guess)


class Recorder:
    """Records the steps in a context's pages from start() to stop(). If the context ends first, the recording is lost.

    Pages report the steps, and may lie; so only known kinds of steps are written, with all texts quoted.
    """

    def __init__(
        self,
        context: BrowserContext,
        holds: set[str],
        *,
        spawn: Callable[..., None],
        tell: Callable[[str], None],
        hidden: Callable[[Page], bool],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._context = context
        self._spawn = spawn
        self._tell = tell
        self._hidden = hidden
        self._clock = clock
        self._lines: list[_Line | str] = []
        self._left_out = 0
        self._names: dict[Page, str] = {}
        self._acted: float | None = None
        self._hears = False
        self._going: set[Page] = set()
        """Pages with a pending navigation that no step caused."""
        self._aimed: tuple[Frame, tuple[str, ...], _Place] | None = None
        """The element under the mouse at the last press of a button."""
        self._placed: list[AsyncContextManager] = []
        self._listeners: list[Callable[[], None]] = []
        self.pause_hold = PauseHold("a recording", holds, spawn=spawn, expire=self._expire)

    async def start(self, current: Page) -> None:
        """Begin to record steps; the current page is called `page`.

        Raises:
            ToolFailed: A recording is already on.
        """
        if self.pause_hold.is_active:
            raise ToolFailed("A recording is going on already; browser_stop_recording ends it.")
        self._lines, self._left_out, self._names, self._acted = [], 0, {}, None
        self._hears = True
        self.pause_hold.begin()
        name = f"__tell_{secrets.token_hex(8)}"
        # A new name for each recording: an exposed name stays taken in pages that are open.
        self._placed = [
            await self._context.expose_binding(name, self._heard),  # pyright: ignore[reportUnknownMemberType]
            await self._context.add_init_script(f"({_script()})({name!r})"),
        ]
        on_page = self._follow
        self._context.on("page", on_page)
        self._listeners = [partial(self._context.remove_listener, "page", on_page)]
        self._named(current)
        for page in self._context.pages:
            self._follow(page)
        await self._everywhere(f"({_script()})", name)

    def _follow(self, page: Page) -> None:
        if self._hidden(page):
            return
        handlers: dict[str, Callable[[Any], None]] = {
            "request": partial(self._requested, page),
            "framenavigated": partial(self._navigated, page),
        }
        for event, handler in handlers.items():
            page.on(cast("Any", event), handler)
            self._listeners.append(partial(page.remove_listener, event, handler))

    def _requested(self, page: Page, request: Request) -> None:
        if request.is_navigation_request() and request.frame.parent_frame is None:
            soon = self._acted is not None and self._clock() - self._acted < CAUSED_SECONDS
            self._going = self._going - {page} if soon else self._going | {page}

    def _navigated(self, page: Page, frame: Frame) -> None:
        self._aimed = None
        if frame.parent_frame is None and page in self._going:
            self._going.discard(page)
            self._add(f"await {self._named(page)}.goto({frame.url!r})")

    def forget(self) -> None:
        """Note that the next navigation is not caused by the last step."""
        self._acted = None

    def _named(self, page: Page) -> str:
        """Return the name of a page in the code; on first use, add the line that defines it."""
        if page not in self._names:
            number = len(self._names)
            self._names[page] = f"page{number}" if number else "page"
            if number:
                at = self._context.pages.index(page)
                self._add(f"page{number} = page.context.pages[{at}]")
        return self._names[page]

    def _heard(self, source: dict[str, Any], said: object) -> None:
        """Handle a message of a page: a step, or the element that the next step will use."""
        page, frame = source["page"], source["frame"]
        seen = seen_of(said)
        if seen is None or page.is_closed() or not self._hears:
            return
        if seen.kind == "aim":
            # Ask for the locator now: after the click the page may have navigated, and the element be gone.
            self._aimed = frame, seen.path, self._place(frame, seen)
            return
        self._acted = self._clock()
        name = self._named(page)
        last = self._lines[-1] if self._lines else None
        if isinstance(last, _Line) and last.page == name and seen.continues(last.seen):
            last.seen = seen
        elif self._aimed is not None and self._aimed[:2] == (frame, seen.path):
            self._add(_Line(name, seen, self._aimed[2]))
        else:
            self._add(_Line(name, seen, self._place(frame, seen)))

    def _place(self, frame: Frame, seen: Seen) -> _Place:
        inner = f"frame(url={frame.url!r})." if frame.parent_frame is not None else ""
        place = _Place(inner + seen.guess)
        self._spawn(self._name, frame, seen, place)
        return place

    def _add(self, line: _Line | str) -> None:
        if len(self._lines) < STEPS:
            self._lines.append(line)
        else:
            self._left_out += 1

    async def _name(self, frame: Frame, seen: Seen, place: _Place) -> None:
        from playwright.async_api import Error

        # The element may be gone, or another one may have taken its place.
        with suppress(Error), anyio.move_on_after(NAME_SECONDS):
            locator = frame.locator(seen.selector).first
            found = str(await locator.normalize())
            if await locator.evaluate(_IS_IT, seen.number, timeout=NAME_SECONDS * 1000):
                place.locator = found
        place.asked.set()

    async def stop(self) -> list[str]:
        """End the recording and return its lines.

        Raises:
            ToolFailed: No recording is on.
        """
        from playwright.async_api import Error

        if not self.pause_hold.is_active:
            raise ToolFailed("No recording is going on; browser_start_recording begins one.")
        self.pause_hold.end()
        # Pages report their last steps before they answer this.
        await self._everywhere(_STOP)
        for remove in self._listeners:
            remove()
        for placed in self._placed:
            with suppress(Error):
                await placed.close()
        with anyio.move_on_after(NAME_SECONDS):
            for place in [line.place for line in self._lines if isinstance(line, _Line)]:
                await place.asked.wait()
        self._hears = False
        await self._everywhere(_LEAVE)
        lines = [str(line) for line in self._lines]
        if self._left_out:
            lines.append(f"# {self._left_out} more steps were left out")
        self._listeners, self._placed, self._lines, self._aimed = [], [], [], None
        return lines

    async def _everywhere(self, script: str, *given: object) -> None:
        frames = itertools.chain(*(page.frames for page in self._context.pages))
        async with anyio.create_task_group() as tasks:
            for frame in frames:
                tasks.start_soon(self._evaluate, frame, script, *given)

    async def _evaluate(self, frame: Frame, script: str, *given: object) -> None:
        from playwright.async_api import Error

        # A frame that is being replaced gets the init script anyway; one that hangs reports no steps.
        with suppress(Error), anyio.move_on_after(NAME_SECONDS):
            await frame.evaluate(script, *given)

    async def _expire(self) -> None:
        with suppress(ToolFailed):
            lines = await self.stop()
            self._tell(
                f"The recording ended by itself after {self.pause_hold.seconds:g} seconds:\n"
                + "\n".join(lines)
            )


__all__ = ["Recorder"]
