"""The live picture of one session, for any number of viewers."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio

from .frames import PageCondition, ScreenUpdate
from .page_capture import FRAME_SECONDS, PageCapture, Spawn

if TYPE_CHECKING:
    from ..session.tab import Tab
    from ..session.tab_list import Tabs
    from ..snapshot.storage_watch import ContextWatch


class Screencast:
    """The captures of a session's pages: each starts with its first viewer and stops with its last.

    It lives as long as the session. Viewers share the newest frame of a page; it keeps no other frames.
    """

    def __init__(
        self,
        tabs: Tabs,
        watch: ContextWatch,
        *,
        spawn: Spawn,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tabs = tabs
        self._watch = watch
        self._spawn = spawn
        self._clock = clock
        self._captures: dict[Tab, PageCapture] = {}
        self._numbers = itertools.count(1)
        self.change = anyio.Event()
        """Set, and replaced, when a viewer may have something to show."""
        self.has_ended = False
        self.people: Counter[str] = Counter()
        """The viewers of each person, by the key of the person."""
        tabs.on_current = self._notify_change

    def __repr__(self) -> str:
        return f"<Screencast captures={len(self._captures)}>"

    @asynccontextmanager
    async def watch(
        self, tab: int | None = None, *, fps: float = 1 / FRAME_SECONDS, person: str = ""
    ) -> AsyncGenerator[ScreenViewer]:
        """Watch a tab by its number, or the current tab of the session, whichever it is.

        `fps` is the number of frames a second that the viewer needs; it gets more if another viewer needs more. `person` is
        the key of the person who watches; other people are told that somebody does.
        Iterating the viewer waits for the next update. It ends when the tab is closed, or the session.
        """
        viewer = ScreenViewer(self, tab, fps, person)
        self._count(person, 1)
        try:
            yield viewer
        finally:
            self._count(person, -1)
            with anyio.CancelScope(shield=True):
                await viewer.leave()

    def find_tab(self, number: int | None) -> Tab | None:
        """Return a tab with a page by its number, or the current one."""
        if number is None:
            return self._tabs.current
        return next((tab for tab in self._tabs if tab.number == number), None)

    async def join(self, tab: Tab, fps: float) -> PageCapture:
        """Add a viewer to the capture of a tab. Call leave() for each join()."""
        capture = self._captures.get(tab)
        if capture is None:
            capture = self._captures[tab] = PageCapture(
                tab,
                self._watch,
                next_number=lambda: next(self._numbers),
                record_change=self._notify_change,
                clock=self._clock,
            )
        capture.add_viewer(fps)
        try:
            async with capture.turn:
                if not capture.is_started:
                    await capture.start(self._spawn)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.leave(capture, fps)
            raise
        return capture

    async def leave(self, capture: PageCapture, fps: float) -> None:
        """Remove a viewer from a capture, and stop it after the last one."""
        capture.remove_viewer(fps)
        async with capture.turn:
            if not capture.has_viewers:
                self._captures.pop(capture.tab, None)
                await capture.stop()

    def _count(self, person: str, change: int) -> None:
        if person:
            self.people[person] += change
            self.people = +self.people
            self._notify_change()

    def end(self) -> None:
        """End the updates of all viewers: the browser is gone, or the session closed."""
        self.has_ended = True
        self._notify_change()

    def _notify_change(self) -> None:
        self.change.set()
        self.change = anyio.Event()


class ScreenViewer:
    """The updates for one viewer. A viewer that asks late skips frames, and delays nobody."""

    def __init__(self, screencast: Screencast, number: int | None, fps: float, person: str) -> None:
        self._screencast = screencast
        self._number = number
        self._fps = fps
        self._person = person
        self._capture: PageCapture | None = None
        self._seen: object = None
        """The parts of the last update by which a new one differs."""
        self._frame = 0
        """The number of the last frame that the viewer got."""
        self._ended = False

    @property
    def others(self) -> int:
        """The number of other people who watch."""
        return len(self._screencast.people.keys() - {self._person})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ScreenUpdate:
        while not self._ended:
            change = self._screencast.change
            await self._follow()
            update, seen = self._update()
            if seen != self._seen:
                self._seen = seen
                self._frame = update.frame.number if update.frame is not None else self._frame
                return update
            await change.wait()
        raise StopAsyncIteration

    async def leave(self) -> None:
        """Stop watching. A second call does nothing."""
        capture, self._capture = self._capture, None
        if capture is not None:
            await self._screencast.leave(capture, self._fps)

    async def _follow(self) -> None:
        """Watch the wanted tab, and the one that took its place after that."""
        tab = self._screencast.find_tab(self._number)
        watched = None if self._capture is None else self._capture.tab
        if tab is None and watched is not None and watched.closed and self._number is not None:
            return
        if tab is not watched:
            await self.leave()
            self._frame = 0
            if tab is not None:
                self._capture = await self._screencast.join(tab, self._fps)

    def _update(self) -> tuple[ScreenUpdate, object]:
        capture = self._capture
        if self._screencast.has_ended or capture is None:
            tab = None if capture is None else capture.tab.number
            self._ended = self._screencast.has_ended or self._number is not None
            condition = PageCondition.CLOSED if self._ended else PageCondition.NO_PAGE
            return ScreenUpdate(condition, tab, None, None), (condition, tab, self.others)
        condition, question, frame = capture.condition, capture.question, capture.frame
        self._ended = condition is PageCondition.CLOSED and self._number is not None
        newest = frame if frame is not None and frame.number > self._frame else None
        update = ScreenUpdate(condition, capture.tab.number, newest, capture.current_at, question)
        number = 0 if frame is None else frame.number
        seen = condition, capture.tab.number, number, question, capture.beats, self.others
        return update, seen
