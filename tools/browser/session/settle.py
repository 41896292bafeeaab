"""Waiting, after an action, for its effects and for nothing else.

There is no fixed pause: an action without effects costs a few milliseconds. The effects are waited for within a bound: a
navigation, the requests that the page's handlers start, and the changes that they make to the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ....sessions.concurrency import RaceLost, race
from ..snapshot.world import WorldError
from .early_snapshot import LARGE, prepare

if TYPE_CHECKING:
    from playwright.async_api import Request

    from ..snapshot.watch import ContextWatch
    from .early_snapshot import EarlySnapshot
    from .tab import Tab

LOAD_SECONDS: Final = 5.0
"""Seconds for which a page may go on loading after its document has arrived."""
ANSWER_SECONDS: Final = 0.5
"""Seconds within which a loaded page has to answer."""
SOON_SECONDS: Final = 0.01
ROUNDS: Final = 20

_AWAITED_TYPES: Final = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Kinds of requests that can change the text of a page. Pictures, media and streams do not."""

_REPORT_REST: Final = """(most => new Promise(done => {
  let changed = performance.now(), same = true, due;
  const end = changed + 200;
  const observer = new MutationObserver(() => { changed = performance.now(); same = false; });
  let seen = 0;
  const observe = root => {
    observer.observe(root, {subtree: true, childList: true, attributes: true, characterData: true});
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT);
    while (seen++ < most && walker.nextNode())
      if (walker.currentNode.shadowRoot) observe(walker.currentNode.shadowRoot);
  };
  observe(document);
  const wait = time => { due = performance.now() + time; setTimeout(look, time); };
  const look = () => {
    const now = performance.now();
    if (now - changed < 8 && now < end) return wait(Math.ceil(changed + 8 - now));
    if (now - due > 4) return wait(1);
    observer.disconnect();
    done([same, document.title]);
  };
  wait(0);
}))"""
"""Resolves once the page did not change for 8 ms, at the latest after 200 ms, to [whether it never changed, its title].

If a timer fires late, a snapshot or a long script has blocked the page, and the page's own tasks are delayed as well; wait
once more, so that they run first. Shadow trees are observed one by one, because an observer of a document does not see them.
"""


async def settle(
    tab: Tab,
    requests: Sequence[Request],
    *,
    watch: ContextWatch,
    seconds: float,
    quiet: bool = True,
    early_snapshot: EarlySnapshot | None = None,
) -> bool:
    """Wait until the page has come to rest after an action, for at most `seconds` plus the time of a navigation.

    `requests` is the list that Tab.record_requests() returned before the action. With `quiet`, wait for the page's own
    changes as well. Returns at once when a dialog or a file chooser opens or the page is gone. Never raises.

    If an `early_snapshot` is given, take it meanwhile; return whether it shows the page as it is now.
    """
    if not (quiet or requests):
        return False
    remaining = seconds
    with anyio.move_on_after(seconds + LOAD_SECONDS):
        for _ in range(ROUNDS):
            start = anyio.current_time()
            with anyio.move_on_after(remaining):
                await _wait_for_answers(tab, requests)
            remaining -= anyio.current_time() - start
            loads = any(_is_main_navigation(tab, request) for request in requests)
            count, is_unchanged = len(requests), [False]
            if (quiet or requests) and not _is_over(tab):
                rest = partial(
                    _wait_for_rest, tab, watch, early_snapshot, is_unchanged, loads=loads
                )
                await _wait_unless_modal(tab, rest)
            if len(requests) == count or _is_over(tab):
                return is_unchanged[0] and not _is_over(tab)
    return False


def _is_over(tab: Tab) -> bool:
    """Return whether there is nothing left to wait for."""
    return tab.closed or tab.crashed or tab.modal.is_set()


async def _wait_for_rest(
    tab: Tab,
    watch: ContextWatch,
    early_snapshot: EarlySnapshot | None,
    is_unchanged: list[bool],
    *,
    loads: bool,
) -> None:
    """Wait until the page is loaded and rests; set `is_unchanged[0]` to whether it stayed unchanged meanwhile."""
    from playwright.async_api import Error

    async with anyio.create_task_group() as tasks:
        try:
            world = await watch.world(tab.page)
            if loads and tab.stage != "loaded":
                await _wait_for_load(tab, tasks, early_snapshot)
            # A page that navigates, closes or crashes answers with an error; a page in an endless script never answers.
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            if early_snapshot is not None:
                # The task starts only when ask() below waits, so the observer sees every change after the snapshot.
                tasks.start_soon(early_snapshot.take, world)
            is_unchanged[0], title = await world.evaluate(f"{_REPORT_REST}({LARGE})")
            if early_snapshot is not None:
                early_snapshot.title = title
        except (Error, WorldError, TypeError, ValueError):
            # The early snapshot may show a document that is gone; wait for the new one to rest.
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            with suppress(Error):
                await tab.page.evaluate(f"() => {_REPORT_REST}({LARGE})")


async def _wait_for_load(tab: Tab, tasks: TaskGroup, early_snapshot: EarlySnapshot | None) -> None:
    """Wait for the load event. If it takes long, prepare the page for a snapshot meanwhile."""
    from playwright.async_api import Error

    with anyio.move_on_after(SOON_SECONDS):
        await _wait_for_load_event(tab)
    if tab.stage == "loaded":
        return
    if early_snapshot is not None:
        tasks.start_soon(prepare, tab)
    with anyio.move_on_after(LOAD_SECONDS), suppress(Error):
        await _wait_for_load_event(tab)
        if tab.stage == "unknown":
            # The navigation may have become a download, or have given no new document.
            await tab.page.wait_for_load_state("load", timeout=LOAD_SECONDS * 1000)


async def _wait_for_load_event(tab: Tab) -> None:
    while tab.stage == "loading" and not _is_over(tab):
        await tab.change.wait()


async def _wait_for_answers(tab: Tab, requests: Sequence[Request]) -> None:
    while not _is_over(tab):
        change = tab.change
        if not any(r in tab.pending and r.resource_type in _AWAITED_TYPES for r in requests):
            return
        await _wait_unless_modal(tab, change.wait)


async def _wait_unless_modal(tab: Tab, wait: Callable[[], Awaitable[object]]) -> None:
    """Wait for `wait`, but stop when the page opens a dialog or file chooser."""
    with suppress(RaceLost):
        await race(tab.modal.wait, wait)


def _is_main_navigation(tab: Tab, request: Request) -> bool:
    return request.is_navigation_request() and request.frame == tab.page.main_frame


__all__ = ["settle"]
