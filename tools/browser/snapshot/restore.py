"""Restoring a saved browser context: logins and the current tab at once, the other tabs when they are first used."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ....sessions.json_codec import JSON
from ....sessions.services import Restored
from ..session.pages import new_page, unless_stopped
from .blank_pages import load_blank, without_network
from .model import ContextSnapshot, SavedTab
from .session_storage import without
from .storage import OriginStorage
from .world import WorldError, origin_of

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Request, Response

logger = logging.getLogger("statehold.browser")

CLOSE_SECONDS: Final = 3.0
LOAD_SECONDS: Final = 2.0
"""Seconds for a page to load its resources before its fields are filled."""
HISTORY_SECONDS: Final = 2.0
PATIENCE: Final[Mapping[str, int]] = {"fieldMilliseconds": 1500, "scrollMilliseconds": 300}
OPENERS: Final = "cross-origin-opener-policy"
ALWAYS_LOST: Final = "what the scripts of the pages held in memory"

_QUESTION: Final = f"statehold-{secrets.token_hex(8)}"
_KEEP_BEGUN: Final = f"""{{ let items = null; try {{ items = sessionStorage.length; }} catch {{}}
  document.addEventListener("{_QUESTION}", () =>
    document.dispatchEvent(new CustomEvent("{_QUESTION}!", {{ detail: items }})), {{ once: true }}); }}"""
"""Lets a document report, once, the number of session storage items at its start; its own scripts may remove items."""
_SAY_BEGUN: Final = f"""() => {{ let items = null;
  document.addEventListener("{_QUESTION}!", ({{ detail }}) => {{ items = detail; }}, {{ once: true }});
  document.dispatchEvent(new Event("{_QUESTION}"));
  return [items, history.state === null]; }}"""


@dataclass(slots=True)
class Report:
    """The result of restoring one tab; `lost` lists, in words, the parts that were not restored."""

    fields: int = 0
    scrolled: bool = False
    lost: list[str] = field(default_factory=list[str])
    swapped: bool = False
    """Whether a Cross-Origin-Opener-Policy may have replaced the page's history state and window name."""


class SleepingTab:
    """A restored tab whose page is not open yet. wake() opens it; concurrent calls get the same page."""

    def __init__(
        self, saved: SavedTab, number: int, context: BrowserContext, origins: OriginStorage
    ) -> None:
        self._saved = saved
        self.number = number
        self.report = Report()
        """The result of wake(); empty before."""
        self._context = context
        self._origins = origins
        self._waking = anyio.Lock()
        self._page: Page | None = None

    def __repr__(self) -> str:
        return f"<SleepingTab {self.number} {'awake' if self._page else 'asleep'}>"

    @property
    def saved(self) -> SavedTab:
        """The saved tab, without storage that its sites have since had the browser clear."""
        return without(self._saved, self._origins.cleared)

    @property
    def url(self) -> str:
        return self.saved.url

    @property
    def title(self) -> str:
        return self.saved.title

    async def wake(self, *, seconds: float) -> Page:
        """Open the tab and restore its page. If the page cannot be loaded, `report` says so and no error is raised.

        Raises:
            playwright's Error: The context is gone.
        """
        async with self._waking:
            if self._page is None:
                page = await new_page(self._context)
                try:
                    self.report = await _loaded(
                        self.saved, self.number, page, self._origins, seconds
                    )
                except BaseException:
                    # The tab stays asleep, and the next call opens a new page.
                    with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
                        await page.close()
                    raise
                self._page = page
            return self._page


@dataclass(slots=True)
class RestoredContext:
    """A restored context. Its owner closes the context; nothing else has to be closed."""

    context: BrowserContext
    origins: OriginStorage
    tabs: list[Page | SleepingTab]
    current: int
    report: Restored


async def restore_context(
    browser: Browser,
    hibernated: ContextSnapshot | None,
    *,
    context_options: Mapping[str, Any],
    prepare: Callable[[BrowserContext, OriginStorage], Awaitable[None]] | None = None,
    seconds: float = 30.0,
) -> RestoredContext:
    """Open a context with a saved state, or an empty context for None.

    `prepare` is called before any page loads. The current tab is loaded within `seconds`. The storage of an origin is
    restored before its first document loads.

    Raises:
        playwright's Error: The browser is gone.
    """
    given = hibernated or ContextSnapshot()
    context = await browser.new_context(**context_options)
    try:
        origins = OriginStorage(context, asleep=given.origins)
        if prepare is not None:
            await prepare(context, origins)
        return await _resumed(context, origins, given, seconds)
    except BaseException:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await context.close()
        raise


async def _resumed(
    context: BrowserContext, origins: OriginStorage, given: ContextSnapshot, seconds: float
) -> RestoredContext:
    now = time.time()
    fresh = [cookie for cookie in given.cookies if not 0 <= cookie.get("expires", -1) < now]
    given = replace(given, cookies=fresh)
    refused = await _add_cookies(context, given.cookies)
    # Their losses are reported now; the next snapshot must not report them again.
    saved = [replace(tab, lost=[]) for tab in given.tabs]
    tabs: list[Page | SleepingTab] = [
        SleepingTab(tab, number, context, origins) for number, tab in enumerate(saved)
    ]
    current = min(given.current, len(tabs) - 1) if tabs else 0
    report = Report()
    if tabs or origins.asleep:
        page = await context.new_page()
        await origins.attach(page)
        if tabs:
            report = await _loaded(saved[current], current, page, origins, seconds)
        tabs[current : current + 1] = [page]
    words = Restored(
        _came_back(given, report, refused),
        ", ".join(_did_not(given, report, refused) + origins.take_trouble()),
    )
    return RestoredContext(context, origins, tabs, current, words)


async def _add_cookies(context: BrowserContext, cookies: Sequence[JSON]) -> int:
    """Add cookies. Return the number of those that the browser refused."""
    from playwright.async_api import Error

    try:
        if cookies:
            await context.add_cookies(cast("Any", cookies))
        return 0
    except Error:
        # The browser refuses all cookies if one is not acceptable: add them one by one.
        refused = 0
        for cookie in cookies:
            try:
                await context.add_cookies(cast("Any", [cookie]))
            except Error:
                refused += 1
        return refused


async def _loaded(
    saved: SavedTab, number: int, page: Page, origins: OriginStorage, seconds: float
) -> Report:
    report = await _brought(saved, number, page, origins, seconds)
    await _placed(saved, page, origins)
    return report


async def _placed(saved: SavedTab, page: Page, origins: OriginStorage) -> None:
    """Set the history of a tab to the saved addresses around its page, without the loads that restored the page."""
    from playwright.async_api import Error

    try:
        with anyio.move_on_after(HISTORY_SECONDS):
            world = await origins.watch.world(page)
            await world.begin(saved.history[: saved.place], saved.history[saved.place + 1 :])
    except Error:
        logger.debug("the history of a tab does not begin with its page", exc_info=True)


async def _brought(
    saved: SavedTab, number: int, page: Page, origins: OriginStorage, seconds: float
) -> Report:
    from playwright.async_api import Error

    report = Report()
    url = saved.url
    origins.sessions.adopt(page, saved.sessions)
    with anyio.move_on_after(seconds) as scope, unless_stopped(page, scope) as stopped:
        try:
            await _shaped(saved, page, origins)
            if origin_of(url) is None:
                if url not in ("", "about:blank"):
                    words = f"the page of tab {number} ({_short(url)} cannot be loaded again)"
                    report.lost.append(words)
                if saved.sessions:
                    async with without_network(page):
                        report.lost += await origins.sessions.put_back(page, at=None)
                        await load_blank(page, "about:blank")
                return report
            await _prepared(saved, page, origins, report)
            async with _begun(saved, page) as begun:
                there = await _visited(saved, number, page, origins, report)
                if there and _has_entry(saved):
                    there = await _entered(saved, number, page, origins, report, begun)
            if there and saved.page is not None:
                await _refilled(saved, number, page, origins, report)
        except (Error, WorldError) as error:
            if page.is_closed():
                raise
            origins.tabs.note_unloaded(page, saved)
            report.lost.append(f"the page of tab {number} ({_first_line(error)})")
    if "dialog" in stopped:
        report.lost.append(f"what was on the page of tab {number} (it asks something first)")
    elif "crash" in stopped:
        origins.tabs.note_unloaded(page, saved)
        report.lost.append(f"the page of tab {number} ({_short(url)} crashed)")
    elif scope.cancelled_caught:
        origins.tabs.note_unloaded(page, saved)
        report.lost.append(
            f"the page of tab {number} ({_short(url)} did not load within {seconds:g} seconds)"
        )
    return report


async def _shaped(saved: SavedTab, page: Page, origins: OriginStorage) -> None:
    """Set the viewport of a tab and its emulated media features."""
    if saved.viewport is not None:
        width, height = saved.viewport
        if page.viewport_size not in (None, {"width": width, "height": height}):
            await page.set_viewport_size({"width": width, "height": height})
    if saved.media:
        await page.emulate_media(**cast("Any", saved.media))
        origins.watch.media[page] = dict(saved.media)


async def _prepared(saved: SavedTab, page: Page, origins: OriginStorage, report: Report) -> None:
    """Restore the storage that the page needs before it loads, on an empty document at its address."""
    from playwright.async_api import Error

    origin = origin_of(saved.url)
    assert origin is not None
    if saved.entry is None and origin not in origins.asleep and not saved.sessions:
        return
    try:
        async with without_network(page):
            report.lost += await origins.sessions.put_back(page, at=origin)
            await load_blank(page, saved.url)
            await origins.wake(origin, page)
            if _has_entry(saved):
                world = await origins.watch.world(page)
                session = saved.sessions.get(origin)
                report.lost += await world.run("restoreTab", origin, session, saved.entry)
    except (Error, WorldError) as error:
        if page.is_closed():
            raise
        # The page may load all the same; the gate tries to restore the storage of its origin once more.
        logger.warning("storage of a tab was not restored: %s", _first_line(error))
        report.lost.append(f"what {origin} had stored")


async def _visited(
    saved: SavedTab, number: int, page: Page, origins: OriginStorage, report: Report
) -> bool:
    """Load the page of a tab. Return whether it is the page that was saved."""
    response = await _answer(saved.url, page)
    report.swapped = response is not None and OPENERS in response.headers
    if saved.posted:
        report.lost.append(
            f"the page of tab {number} (it was the answer to a form, which was not sent again)"
        )
    elif response is not None and response.status >= 400 and response.status != saved.status:
        if response.status >= 500:
            # The page may load the next time, for example if our proxy could not reach the site now.
            origins.tabs.note_failing(page, saved)
        report.lost.append(
            f"the page of tab {number} ({_short(saved.url)} answers {response.status} now)"
        )
    elif page.url.partition("#")[0] != saved.url.partition("#")[0]:
        report.lost.append(f"the page of tab {number} (it went on to {_short(page.url)})")
    else:
        return True
    return False


def _has_entry(saved: SavedTab) -> bool:
    """Return whether a tab has session storage, history state or a name for the page that it showed."""
    return saved.entry is not None or origin_of(saved.url) in saved.sessions


@dataclass(slots=True)
class _Begun:
    """The start of the document that a restored tab loads."""

    requests: list[Request] = field(default_factory=list["Request"])
    """The navigation requests of the tab without redirects; the first is our own."""

    async def ask(self, page: Page) -> tuple[bool, bool] | None:
        """Return whether the document began without session storage, and without history state.

        None if the tab has navigated since.
        """
        from playwright.async_api import Error

        try:
            items, stateless = await page.evaluate(_SAY_BEGUN)
        except Error:
            if page.is_closed():
                raise
            return None
        return (items == 0, stateless) if len(self.requests) < 2 else None


@asynccontextmanager
async def _begun(saved: SavedTab, page: Page) -> AsyncGenerator[_Begun]:
    """Observe the start of the document that a tab with a saved entry loads inside the block."""
    begun = _Begun()
    if not _has_entry(saved):
        yield begun
        return

    def note(request: Request) -> None:
        if request.is_navigation_request() and request.redirected_from is None:
            with suppress(Exception):
                if request.frame == page.main_frame:
                    begun.requests.append(request)

    page.on("request", note)
    try:
        async with await page.add_init_script(_KEEP_BEGUN):
            yield begun
    finally:
        page.remove_listener("request", note)


async def _entered(
    saved: SavedTab, number: int, page: Page, origins: OriginStorage, report: Report, begun: _Begun
) -> bool:
    """Restore session storage and history state once more if the page did not see them at its start.

    The new renderer of the page may have read storage before the browser received the writes of the previous renderer.
    Items that the page saw and removed are not restored: the page would otherwise process them twice. Return whether it is
    still the page that was saved.
    """
    found = await begun.ask(page)
    if found is None:
        if page.url.partition("#")[0] == saved.url.partition("#")[0]:
            return True
        report.lost.append(f"the page of tab {number} (it went on to {_short(page.url)})")
        return False
    origin = origin_of(saved.url)
    session = saved.sessions.get(origin or "")
    if (session and found[0]) or (report.swapped and saved.entry and found[1]):
        world = await origins.watch.world(page)
        await world.run("restoreTab", origin, session, saved.entry)
        await page.reload(wait_until="domcontentloaded")
    return True


async def _answer(url: str, page: Page) -> Response | None:
    from playwright.async_api import Error

    try:
        # goto() with the current address loads no document if the address has a fragment.
        if "#" in url and page.url == url:
            return await page.reload(wait_until="domcontentloaded")
        return await page.goto(url, wait_until="domcontentloaded")
    except Error as error:
        if "interrupted by another navigation" not in error.message:
            raise
        # The page itself navigated.
        await page.wait_for_load_state("domcontentloaded")
        return None


async def _refilled(
    saved: SavedTab, number: int, page: Page, origins: OriginStorage, report: Report
) -> None:
    from playwright.async_api import Error

    with suppress(Error):
        await page.wait_for_load_state("load", timeout=LOAD_SECONDS * 1000)
    try:
        world = await origins.watch.world(page)
        found = await world.run("restorePage", saved.url, saved.page, dict(PATIENCE))
    except WorldError:
        report.lost.append(f"the form fields of tab {number} (the page moved on)")
        return
    report.fields = int(found["fields"])
    report.scrolled = bool(found["scrolled"])
    if found["unfilled"]:
        report.lost.append(f"{_count(found['unfilled'], 'form field')} of tab {number}")
    if found["unscrolled"]:
        report.lost.append(f"scroll positions of tab {number}")


def _came_back(given: ContextSnapshot, report: Report, refused: int) -> str:
    words: list[str] = []
    if given.tabs:
        asleep = len(given.tabs) - 1
        later = f" ({asleep} of them when first used)" if asleep else ""
        words.append(_count(len(given.tabs), "tab") + later)
    if len(given.cookies) > refused:
        words.append(_count(len(given.cookies) - refused, "cookie"))
    if given.origins:
        words.append(f"the storage of {_count(len(given.origins), 'site')}")
    if report.fields:
        words.append(_count(report.fields, "form field"))
    if report.scrolled:
        words.append("the scroll position")
    return ", ".join(words)


def _did_not(given: ContextSnapshot, report: Report, refused: int) -> list[str]:
    lost = [*given.on, *given.lost]
    for number, tab in enumerate(given.tabs):
        lost += [f"{what} of tab {number}" for what in tab.lost]
    lost += report.lost
    if refused:
        lost.append(_count(refused, "cookie"))
    if any(len(tab.history) > 1 for tab in given.tabs):
        lost.append("back and forward (going back loads the pages again)")
    return [*lost, ALWAYS_LOST] if given.tabs else lost


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _short(url: str) -> str:
    """Return an address without query and fragment, which may hold secrets of the page."""
    return url.partition("#")[0].partition("?")[0][:200]


def _first_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return first.partition(": ")[2][:200].partition("?")[0] or first[:200]


__all__ = ["Report", "RestoredContext", "SleepingTab", "restore_context"]
