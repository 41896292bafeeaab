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

_AWAITED: Final = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Kinds of requests that can change the text of a page. Pictures, media and streams do not."""

_REST: Final = """(most => new Promise(done => {
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
    started: Sequence[Request],
    *,
    watch: ContextWatch,
    seconds: float,
    quiet: bool = True,
    glimpse: EarlySnapshot | None = None,
) -> bool:
    """Wait until the page has come to rest after an action, for at most `seconds` plus the time of a navigation.

    `started` is the list that Tab.watch() returned before the action. With `quiet` the page's own changes are waited for
    as well. Returns at once when a dialog or a file chooser opens or the page is gone. Never raises.

    If a `glimpse` is given, it is taken meanwhile; return whether it shows the page as it is now.
    """
    if not (quiet or started):
        return False
    left = seconds
    with anyio.move_on_after(seconds + LOAD_SECONDS):
        for _ in range(ROUNDS):
            since = anyio.current_time()
            with anyio.move_on_after(left):
                await _answered(tab, started)
            left -= anyio.current_time() - since
            loads = any(_is_main(tab, request) for request in started)
            done, same = len(started), [False]
            if (quiet or started) and not _over(tab):
                rest = partial(_quieted, tab, watch, glimpse, same, loads=loads)
                await _unless_modal(tab, rest)
            if len(started) == done or _over(tab):
                return same[0] and not _over(tab)
    return False


def _over(tab: Tab) -> bool:
    """Return whether there is nothing left to wait for."""
    return tab.closed or tab.crashed or tab.modal.is_set()


async def _quieted(
    tab: Tab, watch: ContextWatch, glimpse: EarlySnapshot | None, same: list[bool], *, loads: bool
) -> None:
    """Wait until the page is loaded and rests; set `same[0]` to whether it stayed unchanged meanwhile."""
    from playwright.async_api import Error

    async with anyio.create_task_group() as tasks:
        try:
            world = await watch.world(tab.page)
            if loads and tab.stage != "loaded":
                await _loaded(tab, tasks, glimpse)
            # A page that navigates, closes or crashes answers with an error; a page in an endless script never answers.
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            if glimpse is not None:
                # The task starts only when ask() below waits, so the observer sees every change after the snapshot.
                tasks.start_soon(glimpse.take, world)
            same[0], title = await world.ask(f"{_REST}({LARGE})")
            if glimpse is not None:
                glimpse.title = title
        except (Error, WorldError, TypeError, ValueError):
            # The sample may show a document that is gone; wait for the new one to rest.
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWER_SECONDS
            with suppress(Error):
                await tab.page.evaluate(f"() => {_REST}({LARGE})")


async def _loaded(tab: Tab, tasks: TaskGroup, glimpse: EarlySnapshot | None) -> None:
    """Wait for the load event. If it takes long, prepare the page for a snapshot meanwhile."""
    from playwright.async_api import Error

    with anyio.move_on_after(SOON_SECONDS):
        await _seen_loaded(tab)
    if tab.stage == "loaded":
        return
    if glimpse is not None:
        tasks.start_soon(prepare, tab)
    with anyio.move_on_after(LOAD_SECONDS), suppress(Error):
        await _seen_loaded(tab)
        if tab.stage == "unknown":
            # The navigation may have become a download, or have given no new document.
            await tab.page.wait_for_load_state("load", timeout=LOAD_SECONDS * 1000)


async def _seen_loaded(tab: Tab) -> None:
    while tab.stage == "loading" and not _over(tab):
        await tab.changed.wait()


async def _answered(tab: Tab, started: Sequence[Request]) -> None:
    while not _over(tab):
        changed = tab.changed
        if not any(r in tab.pending and r.resource_type in _AWAITED for r in started):
            return
        await _unless_modal(tab, changed.wait)


async def _unless_modal(tab: Tab, wait: Callable[[], Awaitable[object]]) -> None:
    """Wait for `wait`, but stop when the page opens a dialog or file chooser."""
    with suppress(RaceLost):
        await race(tab.modal.wait, wait)


def _is_main(tab: Tab, request: Request) -> bool:
    return request.is_navigation_request() and request.frame == tab.page.main_frame


__all__ = ["settle"]
