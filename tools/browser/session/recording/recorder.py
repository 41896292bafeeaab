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

from ...errors import BrowserToolFailed
from ..pause_hold import PauseHold
from .steps import Step, line_of, parse_step

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page, Request

    from ...devtools.sdk import AsyncContextManager

MOST_STEPS: Final = 2000
"""The most steps of a recording; the number of those left out is added as a comment."""
QUERY_SECONDS: Final = 3.0
"""Longest wait for the answer of a page: its locator for an element, or a script that starts or stops."""
CAUSED_SECONDS: Final = 1.0
"""A navigation within so many seconds after a step counts as caused by it."""

_STOP: Final = "() => window.__stateholdRecorder && window.__stateholdRecorder()"
_LEAVE: Final = "() => { delete window.__stateholdRecorder; }"
_IS_SAME_ELEMENT: Final = "(element, number) => window.__stateholdRecorder(number, element)"


@cache
def _script() -> str:
    return (Path(__file__).parent / "recorder.js").read_text("utf-8")


@dataclass(slots=True)
class _StepTarget:
    """The element of a step. Its locator is `guess`, from the recorder in the page, until Playwright has answered."""

    guess: str
    locator: str | None = None
    query_end: anyio.Event = field(default_factory=anyio.Event)
    """Set when the query to the page is over, successful or not."""


@dataclass(slots=True)
class _Line:
    page: str
    step: Step
    element: _StepTarget

    def __str__(self) -> str:
        return line_of(self.page, self.step, self.element.locator or self.element.guess)


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
        add_event: Callable[[str], None],
        is_hidden: Callable[[Page], bool],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._context = context
        self._spawn = spawn
        self._add_event = add_event
        self._is_hidden = is_hidden
        self._clock = clock
        self._lines: list[_Line | str] = []
        self._omitted = 0
        self._names: dict[Page, str] = {}
        self._last_step_at: float | None = None
        self._is_listening = False
        self._external_navigations: set[Page] = set()
        """Pages with a pending navigation that no step caused."""
        self._aim: tuple[Frame, tuple[str, ...], _StepTarget] | None = None
        """The element under the mouse at the last press of a button."""
        self._installed_scripts: list[AsyncContextManager] = []
        self._listeners: list[Callable[[], None]] = []
        self.pause_hold = PauseHold("a recording", holds, spawn=spawn, expire=self._expire)

    async def start(self, current: Page) -> None:
        """Begin to record steps; the current page is called `page`.

        Raises:
            BrowserToolFailed: A recording is already on.
        """
        if self.pause_hold.is_active:
            raise BrowserToolFailed(
                "A recording is going on already; browser_stop_recording ends it."
            )
        self._lines, self._omitted, self._names, self._last_step_at = [], 0, {}, None
        self._is_listening = True
        self.pause_hold.begin()
        name = f"__tell_{secrets.token_hex(8)}"
        # A new name for each recording: an exposed name stays taken in pages that are open.
        self._installed_scripts = [
            await self._context.expose_binding(name, self._on_message),  # pyright: ignore[reportUnknownMemberType]
            await self._context.add_init_script(f"({_script()})({name!r})"),
        ]
        on_page = self._follow
        self._context.on("page", on_page)
        self._listeners = [partial(self._context.remove_listener, "page", on_page)]
        self._page_name(current)
        for page in self._context.pages:
            self._follow(page)
        await self._evaluate_everywhere(f"({_script()})", name)

    def _follow(self, page: Page) -> None:
        if self._is_hidden(page):
            return
        handlers: dict[str, Callable[[Any], None]] = {
            "request": partial(self._on_request, page),
            "framenavigated": partial(self._on_navigation, page),
        }
        for event, handler in handlers.items():
            page.on(cast("Any", event), handler)
            self._listeners.append(partial(page.remove_listener, event, handler))

    def _on_request(self, page: Page, request: Request) -> None:
        if request.is_navigation_request() and request.frame.parent_frame is None:
            is_caused = (
                self._last_step_at is not None
                and self._clock() - self._last_step_at < CAUSED_SECONDS
            )
            if is_caused:
                self._external_navigations.discard(page)
            else:
                self._external_navigations.add(page)

    def _on_navigation(self, page: Page, frame: Frame) -> None:
        self._aim = None
        if frame.parent_frame is None and page in self._external_navigations:
            self._external_navigations.discard(page)
            self._add(f"await {self._page_name(page)}.goto({frame.url!r})")

    def forget_last_step(self) -> None:
        """Note that the next navigation is not caused by the last step."""
        self._last_step_at = None

    def _page_name(self, page: Page) -> str:
        """Return the name of a page in the code; on first use, add the line that defines it."""
        if page not in self._names:
            number = len(self._names)
            self._names[page] = f"page{number}" if number else "page"
            if number:
                at = self._context.pages.index(page)
                self._add(f"page{number} = page.context.pages[{at}]")
        return self._names[page]

    def _on_message(self, source: dict[str, Any], message: object) -> None:
        """Handle a message of a page: a step, or the element that the next step will use."""
        page, frame = source["page"], source["frame"]
        step = parse_step(message)
        if step is None or page.is_closed() or not self._is_listening:
            return
        if step.kind == "aim":
            # Ask for the locator now: after the click the page may have navigated, and the element be gone.
            self._aim = frame, step.path, self._locate(frame, step)
            return
        self._last_step_at = self._clock()
        name = self._page_name(page)
        last = self._lines[-1] if self._lines else None
        if isinstance(last, _Line) and last.page == name and step.continues(last.step):
            last.step = step
        elif self._aim is not None and self._aim[:2] == (frame, step.path):
            self._add(_Line(name, step, self._aim[2]))
        else:
            self._add(_Line(name, step, self._locate(frame, step)))

    def _locate(self, frame: Frame, step: Step) -> _StepTarget:
        inner = f"frame(url={frame.url!r})." if frame.parent_frame is not None else ""
        element = _StepTarget(inner + step.guess)
        self._spawn(self._query_locator, frame, step, element)
        return element

    def _add(self, line: _Line | str) -> None:
        if len(self._lines) < MOST_STEPS:
            self._lines.append(line)
        else:
            self._omitted += 1

    async def _query_locator(self, frame: Frame, step: Step, element: _StepTarget) -> None:
        from playwright.async_api import Error

        # The element may be gone, or another one may have taken its place.
        with suppress(Error), anyio.move_on_after(QUERY_SECONDS):
            locator = frame.locator(step.selector).first
            code = str(await locator.normalize())
            if await locator.evaluate(_IS_SAME_ELEMENT, step.number, timeout=QUERY_SECONDS * 1000):
                element.locator = code
        element.query_end.set()

    async def stop(self) -> list[str]:
        """End the recording and return its lines.

        Raises:
            BrowserToolFailed: No recording is on.
        """
        from playwright.async_api import Error

        if not self.pause_hold.is_active:
            raise BrowserToolFailed("No recording is going on; browser_start_recording begins one.")
        self.pause_hold.end()
        # Pages report their last steps before they answer this.
        await self._evaluate_everywhere(_STOP)
        for remove in self._listeners:
            remove()
        for script in self._installed_scripts:
            with suppress(Error):
                await script.close()
        with anyio.move_on_after(QUERY_SECONDS):
            for element in [line.element for line in self._lines if isinstance(line, _Line)]:
                await element.query_end.wait()
        self._is_listening = False
        await self._evaluate_everywhere(_LEAVE)
        lines = [str(line) for line in self._lines]
        if self._omitted:
            lines.append(f"# {self._omitted} more steps were left out")
        self._listeners, self._installed_scripts, self._lines, self._aim = [], [], [], None
        return lines

    async def _evaluate_everywhere(self, script: str, *arguments: object) -> None:
        frames = itertools.chain(*(page.frames for page in self._context.pages))
        async with anyio.create_task_group() as tasks:
            for frame in frames:
                tasks.start_soon(self._evaluate, frame, script, *arguments)

    async def _evaluate(self, frame: Frame, script: str, *arguments: object) -> None:
        from playwright.async_api import Error

        # A frame that is being replaced gets the init script anyway; one that hangs reports no steps.
        with suppress(Error), anyio.move_on_after(QUERY_SECONDS):
            await frame.evaluate(script, *arguments)

    async def _expire(self) -> None:
        with suppress(BrowserToolFailed):
            lines = await self.stop()
            self._add_event(
                f"The recording ended by itself after {self.pause_hold.seconds:g} seconds:\n"
                + "\n".join(lines)
            )
