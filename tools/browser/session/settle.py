"""Waiting, after an action, for its effects.

An action without effects costs a few milliseconds. The effects are waited for within a bound: a navigation, the requests
that the page's handlers start, and the changes that they make to the page. There are three measures:

- fast: until the page does not change for a moment.
- balanced: until nothing is pending, too, that scripts of the page began since the action; Activity counts it.
- patient: as fast, and half a second more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup

from ....sessions.concurrency import RaceLost, race
from .. import errors
from ..devtools.world import WorldError
from .early_snapshot import LARGE, prepare
from .page_activity import SOURCE, Rest
from .traffic import DATA_TYPES

if TYPE_CHECKING:
    from playwright.async_api import Request

    from ..snapshot.storage_watch import ContextWatch
    from .early_snapshot import EarlySnapshot
    from .tab import Tab

Mode: TypeAlias = Literal["fast", "balanced", "patient"]

LOAD_SECONDS: Final = 5.0
"""Seconds for which a page may go on loading after its document has arrived."""
ANSWER_SECONDS: Final = 0.5
"""Seconds within which a loaded page has to answer."""
LEAST_SECONDS: Final = 0.2
"""Seconds for which a page may change after a wait for requests that took all the time."""
PATIENCE_SECONDS: Final = 0.5
"""Seconds that the measure `patient` adds."""
SOON_SECONDS: Final = 0.01
MAX_ROUNDS: Final = 20
MAX_MESSAGES: Final = 5
"""The most messages of a page that are told when they are gone again."""


@dataclass(slots=True)
class _Waiting:
    """One action that is waited for."""

    tab: Tab
    requests: Sequence[Request]
    watch: ContextWatch
    mode: Mode
    remaining: float
    """Seconds that are left of the bound."""
    early_snapshot: EarlySnapshot | None
    is_unchanged: bool = False
    is_busy: bool = False
    has_ended: bool = False
    picker: str = ""
    gone_messages: list[str] = field(default_factory=list[str])

    def note(self, rest: Rest) -> None:
        self.is_unchanged = self.is_unchanged and rest.is_unchanged
        self.is_busy = rest.is_busy
        self.has_ended = rest.has_ended
        self.record_effects(rest)
        if self.early_snapshot is not None:
            self.early_snapshot.title = rest.title

    def record_effects(self, rest: Rest) -> None:
        self.tab.traffic.expects_download |= rest.downloads
        self.tab.copied_texts = rest.copied or self.tab.copied_texts
        self.gone_messages += rest.gone_messages
        self.picker = rest.picker or self.picker

    @property
    def loads(self) -> bool:
        """Whether the action loads a page."""
        return any(_is_main_navigation(self.tab, request) for request in self.requests)

    def has_effects(self, count: int) -> bool:
        """Return whether one of the requests after the first `count` is an effect of the action."""
        traffic, loads = self.tab.traffic, self.loads
        return any(traffic.is_effect(r, loads=loads) for r in islice(self.requests, count, None))


async def watch_activity(tab: Tab, *, watch: ContextWatch) -> None:
    """Before an action, begin to count what scripts of the page start. Does nothing if the page does not answer."""
    if not tab.modal.is_set():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tab.frame_activity.begin)
            with anyio.move_on_after(ANSWER_SECONDS), suppress(errors.Error, WorldError):
                await tab.activity.begin(await watch.world(tab.page))


async def unwatch_activity(tab: Tab, *, watch: ContextWatch) -> None:
    """Give the page its own functions back. With an open dialog the page cannot answer; the next action does it."""
    if not _is_over(tab):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tab.frame_activity.end)
            with anyio.move_on_after(ANSWER_SECONDS), suppress(errors.Error, WorldError):
                await tab.activity.end(await watch.world(tab.page))


async def settle(
    tab: Tab,
    requests: Sequence[Request],
    *,
    watch: ContextWatch,
    mode: Mode,
    seconds: float,
    quiet: bool = True,
    early_snapshot: EarlySnapshot | None = None,
) -> bool:
    """Wait until the page has come to rest after an action, for at most `seconds` plus the time of a navigation.

    `requests` is the list that Tab.record_requests() returned before the action. With `quiet`, wait for the page's own
    changes as well. Returns at once when a dialog or a file chooser opens or the page is gone. If something still goes on at
    the end, the tab's events say so. Never raises.

    If an `early_snapshot` is given, take it meanwhile; return whether it shows the page as it is now.
    """
    if not (quiet or requests):
        return False
    waiting = _Waiting(
        tab, requests, watch, mode, seconds, early_snapshot if mode != "patient" else None
    )
    with anyio.move_on_after(seconds + LOAD_SECONDS):
        await _settle(waiting, quiet=quiet)
    _tell_events(waiting)
    tab.traffic.end_action()
    if mode == "balanced":
        if not waiting.has_ended:
            await unwatch_activity(tab, watch=watch)
        elif not _is_over(tab):
            await tab.frame_activity.end()
    return waiting.is_unchanged and not _is_over(tab)


async def _settle(waiting: _Waiting, *, quiet: bool) -> None:
    tab, requests = waiting.tab, waiting.requests
    is_patient = waiting.mode == "patient"
    for _ in range(MAX_ROUNDS):
        start = anyio.current_time()
        with anyio.move_on_after(waiting.remaining):
            await _wait_for_answers(waiting)
        waiting.remaining -= anyio.current_time() - start
        loads = waiting.loads
        count, waiting.is_unchanged = len(requests), False
        if (quiet or requests) and not _is_over(tab):
            await _wait_unless_modal(tab, partial(_wait_for_rest, waiting, loads=loads))
        if is_patient and not _is_over(tab):
            await _wait_unless_modal(tab, partial(anyio.sleep, PATIENCE_SECONDS))
            waiting.is_unchanged = is_patient = False
        if not waiting.has_effects(count) or _is_over(tab):
            return


def _is_over(tab: Tab) -> bool:
    """Return whether there is nothing left to wait for."""
    return tab.closed or tab.crashed or tab.modal.is_set()


async def _wait_for_rest(waiting: _Waiting, *, loads: bool) -> None:
    """Wait until the page is loaded and rests."""
    tab, early_snapshot = waiting.tab, waiting.early_snapshot
    async with anyio.create_task_group() as tasks:
        try:
            world = await waiting.watch.world(tab.page)
            if loads and tab.stage != "loaded":
                await _wait_for_load(tab, tasks, early_snapshot)
            # A page that navigates, closes or crashes answers with an error; a page in an endless script never answers.
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            if early_snapshot is not None:
                # The task starts only when rest() below waits, so the observer sees every change after the snapshot.
                tasks.start_soon(early_snapshot.take, world)
            end, rest = anyio.current_time() + waiting.remaining, None
            waiting.is_unchanged = True
            while rest is None or not rest.is_over:
                tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
                rest = await tab.activity.rest(
                    world,
                    hooked=waiting.mode == "balanced",
                    again=rest is not None,
                    active=any(r.resource_type in DATA_TYPES for r in waiting.requests),
                    most=LARGE,
                    seconds=max(LEAST_SECONDS, end - anyio.current_time()),
                )
                waiting.note(rest)
                if rest.is_over and await _wait_for_frames(waiting, tasks, end):
                    # The frames may have answered the page.
                    rest, waiting.is_unchanged = None, False
            waiting.remaining = end - anyio.current_time()
        except (errors.Error, WorldError, TypeError, ValueError):
            # The early snapshot may show a document that is gone; wait for the new one to rest.
            waiting.is_unchanged = False
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            options = f"{{hooked: false, again: false, active: false, most: {LARGE}, left: 1000}}"
            with suppress(errors.Error):
                await tab.page.evaluate(f"() => ({SOURCE}).rest({options})")


async def _wait_for_frames(waiting: _Waiting, tasks: TaskGroup, end: float) -> bool:
    """Wait until the frames of other sites rest. Return whether one changed, and there is time left until `end`."""
    seconds = end - anyio.current_time()
    if waiting.mode != "balanced" or seconds <= 0:
        return False
    tasks.cancel_scope.deadline = end + ANSWER_SECONDS
    rests = await waiting.tab.frame_activity.rest(seconds)
    for rest in rests:
        waiting.record_effects(rest)
    return not all(rest.is_unchanged for rest in rests) and anyio.current_time() < end


def _tell_events(waiting: _Waiting) -> None:
    """Add to the events of the tab what still goes on after an action, and the messages that the page showed meanwhile."""
    tab = waiting.tab
    for message in dict.fromkeys(waiting.gone_messages[:MAX_MESSAGES]):
        tab.event_lines.append(f"Shown for a moment: {' '.join(message.split())}")
    if waiting.picker:
        tab.event_lines.append(
            f"The page asked for files by {waiting.picker}(), a dialog of the browser that no tool answers."
        )
    if _is_over(tab):
        return
    requests = tab.traffic.take_open(
        [r for r in waiting.requests if not _is_main_navigation(tab, r)]
    )
    problems = ["the page was still busy"] if waiting.is_busy else []
    if requests:
        first = f"{requests[0].method} {urlsplit(requests[0].url).path[:100]}"
        problems.append(
            f"1 request was still open ({first})"
            if len(requests) == 1
            else f"{len(requests)} requests were still open ({first}, ...)"
        )
    if problems:
        line = " and ".join(problems)
        tab.event_lines.append(f"{line[0].upper()}{line[1:]}; wait with browser_wait_for.")


async def _wait_for_load(tab: Tab, tasks: TaskGroup, early_snapshot: EarlySnapshot | None) -> None:
    """Wait for the load event. If it takes long, prepare the page for a snapshot meanwhile."""
    with anyio.move_on_after(SOON_SECONDS):
        await _wait_for_load_event(tab)
    if tab.stage == "loaded":
        return
    if early_snapshot is not None:
        tasks.start_soon(prepare, tab)
    with anyio.move_on_after(LOAD_SECONDS), suppress(errors.Error):
        await _wait_for_load_event(tab)
        if tab.stage == "unknown":
            # The navigation may have become a download, or have given no new document.
            await tab.page.wait_for_load_state("load", timeout=LOAD_SECONDS * 1000)


async def _wait_for_load_event(tab: Tab) -> None:
    while tab.stage == "loading" and not _is_over(tab):
        await tab.change.wait()


async def _wait_for_answers(waiting: _Waiting) -> None:
    tab = waiting.tab
    while not _is_over(tab):
        change = tab.change
        seconds = tab.traffic.seconds_to_wait(waiting.requests, loads=waiting.loads)
        if not seconds:
            return
        with anyio.move_on_after(seconds):
            await _wait_unless_modal(tab, change.wait)


async def _wait_unless_modal(tab: Tab, wait: Callable[[], Awaitable[object]]) -> None:
    """Wait for `wait`, but stop when the page opens a dialog or file chooser."""
    with suppress(RaceLost):
        await race(tab.modal.wait, wait)


def _is_main_navigation(tab: Tab, request: Request) -> bool:
    return request.is_navigation_request() and request.frame == tab.page.main_frame
