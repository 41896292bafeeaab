"""Restoring one saved tab: its storage before its page loads, then the page, its fields and its history."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ....sessions.one_line import plural
from .. import errors
from ..devtools.blank_pages import load_blank, without_network
from ..devtools.pages import cancel_when_stopped, new_page
from ..devtools.world import WorldError, origin_of
from .model import SavedTab
from .saved_storage import OriginStorage
from .session_storage import without_sessions

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Request, Response

logger = logging.getLogger("statehold.browser")

CLOSE_SECONDS: Final = 3.0
LOAD_SECONDS: Final = 2.0
"""Seconds for a page to load its resources before its fields are filled."""
HISTORY_SECONDS: Final = 2.0
RETRY_LIMITS: Final[Mapping[str, int]] = {"fieldMilliseconds": 1500, "scrollMilliseconds": 300}
OPENER_POLICY: Final = "cross-origin-opener-policy"

_QUESTION: Final = f"statehold-{secrets.token_hex(8)}"
_NOTE_START: Final = f"""{{ let items = null; try {{ items = sessionStorage.length; }} catch {{}}
  document.addEventListener("{_QUESTION}", () =>
    document.dispatchEvent(new CustomEvent("{_QUESTION}!", {{ detail: items }})), {{ once: true }}); }}"""
"""Lets a document report, once, the number of session storage items at its start; its own scripts may remove items."""
_REPORT_START: Final = f"""() => {{ let items = null;
  document.addEventListener("{_QUESTION}!", ({{ detail }}) => {{ items = detail; }}, {{ once: true }});
  document.dispatchEvent(new Event("{_QUESTION}"));
  return [items, history.state === null]; }}"""


@dataclass(slots=True)
class TabReport:
    """The result of restoring one tab; `lost` lists, in words, the parts that were not restored."""

    fields: int = 0
    scrolled: bool = False
    lost: list[str] = field(default_factory=list[str])
    may_have_swapped: bool = False
    """Whether a Cross-Origin-Opener-Policy may have replaced the page's history state and window name."""


class DormantTab:
    """A restored tab whose page is not open yet. open() opens it; concurrent calls get the same page."""

    def __init__(
        self, saved_tab: SavedTab, number: int, context: BrowserContext, origins: OriginStorage
    ) -> None:
        self._saved_tab = saved_tab
        self.number = number
        self.report = TabReport()
        """The result of open(); empty before."""
        self._context = context
        self._origins = origins
        self._opening = anyio.Lock()
        self._page: Page | None = None

    def __repr__(self) -> str:
        return f"<DormantTab {self.number} {'open' if self._page else 'not open'}>"

    @property
    def saved_tab(self) -> SavedTab:
        """The saved tab, without storage that its sites have since had the browser clear."""
        return without_sessions(self._saved_tab, self._origins.cleared_origins)

    @property
    def url(self) -> str:
        return self.saved_tab.url

    @property
    def title(self) -> str:
        return self.saved_tab.title

    async def open(self, *, seconds: float) -> Page:
        """Open the tab and restore its page. If the page cannot be loaded, `report` says so and no error is raised.

        Raises:
            playwright's Error: The context is gone.
        """
        async with self._opening:
            if self._page is None:
                page = await new_page(self._context)
                try:
                    self.report = await load_tab(
                        self.saved_tab, self.number, page, self._origins, seconds
                    )
                except BaseException:
                    # The tab stays dormant, and the next call opens a new page.
                    with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
                        await page.close()
                    raise
                self._page = page
            return self._page


async def load_tab(
    saved_tab: SavedTab, number: int, page: Page, origins: OriginStorage, seconds: float
) -> TabReport:
    report = await _restore_page(saved_tab, number, page, origins, seconds)
    await _set_history(saved_tab, page, origins)
    return report


async def _set_history(saved_tab: SavedTab, page: Page, origins: OriginStorage) -> None:
    """Set the history of a tab to the saved addresses around its page, without the loads that restored the page."""
    try:
        with anyio.move_on_after(HISTORY_SECONDS):
            world = await origins.watch.world(page)
            await world.reset_history(
                saved_tab.history[: saved_tab.position], saved_tab.history[saved_tab.position + 1 :]
            )
    except errors.Error:
        logger.debug("the history of a tab does not begin with its page", exc_info=True)


async def _restore_page(
    saved_tab: SavedTab, number: int, page: Page, origins: OriginStorage, seconds: float
) -> TabReport:
    report = TabReport()
    url = saved_tab.url
    origins.sessions.adopt(page, saved_tab.sessions)
    with anyio.move_on_after(seconds) as scope, cancel_when_stopped(page, scope) as causes:
        try:
            await _set_appearance(saved_tab, page, origins)
            if origin_of(url) is None:
                if url not in ("", "about:blank"):
                    loss = (
                        f"the page of tab {number} ({_without_query(url)} cannot be loaded again)"
                    )
                    report.lost.append(loss)
                if saved_tab.sessions:
                    async with without_network(page):
                        report.lost += await origins.sessions.restore(page, but=None)
                        await load_blank(page, "about:blank")
                return report
            await _restore_storage(saved_tab, page, origins, report)
            async with _observe_start(saved_tab, page) as start:
                is_saved_page = await _load_saved_page(saved_tab, number, page, origins, report)
                if is_saved_page and _has_entry(saved_tab):
                    is_saved_page = await _restore_missing(
                        saved_tab, number, page, origins, report, start
                    )
            if is_saved_page and saved_tab.page is not None:
                await _restore_fields(saved_tab, number, page, origins, report)
        except (errors.Error, WorldError) as error:
            if page.is_closed():
                raise
            origins.tabs.record_unloadable(page, saved_tab)
            report.lost.append(f"the page of tab {number} ({_first_line(error)})")
    if "dialog" in causes:
        report.lost.append(f"what was on the page of tab {number} (it asks something first)")
    elif "crash" in causes:
        origins.tabs.record_unloadable(page, saved_tab)
        report.lost.append(f"the page of tab {number} ({_without_query(url)} crashed)")
    elif scope.cancelled_caught:
        origins.tabs.record_unloadable(page, saved_tab)
        report.lost.append(
            f"the page of tab {number} ({_without_query(url)} did not load within {seconds:g} seconds)"
        )
    return report


async def _set_appearance(saved_tab: SavedTab, page: Page, origins: OriginStorage) -> None:
    """Set the viewport of a tab and its emulated media features."""
    if saved_tab.viewport is not None:
        width, height = saved_tab.viewport
        if page.viewport_size not in (None, {"width": width, "height": height}):
            await page.set_viewport_size({"width": width, "height": height})
    if saved_tab.media:
        await page.emulate_media(**cast("Any", saved_tab.media))
        origins.watch.media[page] = dict(saved_tab.media)
        await origins.watch.share_emulation(page)


async def _restore_storage(
    saved_tab: SavedTab, page: Page, origins: OriginStorage, report: TabReport
) -> None:
    """Restore the storage that the page needs before it loads, on an empty document at its address."""
    origin = origin_of(saved_tab.url)
    assert origin is not None
    if saved_tab.entry is None and origin not in origins.dormant and not saved_tab.sessions:
        return
    try:
        async with without_network(page):
            report.lost += await origins.sessions.restore(page, but=origin)
            await load_blank(page, saved_tab.url)
            await origins.restore_origin(origin, page)
            if _has_entry(saved_tab):
                world = await origins.watch.world(page)
                session = saved_tab.sessions.get(origin)
                report.lost += await world.run("restoreTab", origin, session, saved_tab.entry)
    except (errors.Error, WorldError) as error:
        if page.is_closed():
            raise
        # The page may load all the same; the interceptor tries to restore the storage of its origin once more.
        logger.warning("storage of a tab was not restored: %s", _first_line(error))
        report.lost.append(f"what {origin} had stored")


async def _load_saved_page(
    saved_tab: SavedTab, number: int, page: Page, origins: OriginStorage, report: TabReport
) -> bool:
    """Load the page of a tab. Return whether it is the page that was saved."""
    response = await _load_address(saved_tab.url, page)
    report.may_have_swapped = response is not None and OPENER_POLICY in response.headers
    if saved_tab.posted:
        report.lost.append(
            f"the page of tab {number} (it was the answer to a form, which was not sent again)"
        )
    elif response is not None and response.status >= 400 and response.status != saved_tab.status:
        if response.status >= 500:
            # The page may load the next time, for example if our proxy could not reach the site now.
            origins.tabs.record_failing(page, saved_tab)
        report.lost.append(
            f"the page of tab {number} ({_without_query(saved_tab.url)} answers {response.status} now)"
        )
    elif page.url.partition("#")[0] != saved_tab.url.partition("#")[0]:
        report.lost.append(f"the page of tab {number} (it went on to {_without_query(page.url)})")
    else:
        return True
    return False


def _has_entry(saved_tab: SavedTab) -> bool:
    """Return whether a tab has session storage, history state or a name for the page that it showed."""
    return saved_tab.entry is not None or origin_of(saved_tab.url) in saved_tab.sessions


@dataclass(slots=True)
class _DocumentStart:
    """The start of the document that a restored tab loads."""

    requests: list[Request] = field(default_factory=list["Request"])
    """The navigation requests of the tab without redirects; the first is our own."""

    async def report(self, page: Page) -> tuple[bool, bool] | None:
        """Return whether the document began without session storage, and without history state.

        None if the tab has navigated since.
        """
        try:
            items, stateless = await page.evaluate(_REPORT_START)
        except errors.Error:
            if page.is_closed():
                raise
            return None
        return (items == 0, stateless) if len(self.requests) < 2 else None


@asynccontextmanager
async def _observe_start(saved_tab: SavedTab, page: Page) -> AsyncGenerator[_DocumentStart]:
    """Observe the start of the document that a tab with a saved entry loads inside the block."""
    start = _DocumentStart()
    if not _has_entry(saved_tab):
        yield start
        return

    def note(request: Request) -> None:
        if request.is_navigation_request() and request.redirected_from is None:
            with suppress(Exception):
                if request.frame == page.main_frame:
                    start.requests.append(request)

    page.on("request", note)
    try:
        async with await page.add_init_script(_NOTE_START):
            yield start
    finally:
        page.remove_listener("request", note)


async def _restore_missing(
    saved_tab: SavedTab,
    number: int,
    page: Page,
    origins: OriginStorage,
    report: TabReport,
    start: _DocumentStart,
) -> bool:
    """Restore session storage and history state once more if the page did not see them at its start.

    The new renderer of the page may have read storage before the browser received the writes of the previous renderer.
    Items that the page saw and removed are not restored: the page would otherwise process them twice. Return whether it is
    still the page that was saved.
    """
    start_state = await start.report(page)
    if start_state is None:
        if page.url.partition("#")[0] == saved_tab.url.partition("#")[0]:
            return True
        report.lost.append(f"the page of tab {number} (it went on to {_without_query(page.url)})")
        return False
    origin = origin_of(saved_tab.url)
    session = saved_tab.sessions.get(origin or "")
    if (session and start_state[0]) or (
        report.may_have_swapped and saved_tab.entry and start_state[1]
    ):
        world = await origins.watch.world(page)
        await world.run("restoreTab", origin, session, saved_tab.entry)
        await page.reload(wait_until="domcontentloaded")
    return True


async def _load_address(url: str, page: Page) -> Response | None:
    try:
        # goto() with the current address loads no document if the address has a fragment.
        if "#" in url and page.url == url:
            return await page.reload(wait_until="domcontentloaded")
        return await page.goto(url, wait_until="domcontentloaded")
    except errors.Error as error:
        if "interrupted by another navigation" not in error.message:
            raise
        # The page itself navigated.
        await page.wait_for_load_state("domcontentloaded")
        return None


async def _restore_fields(
    saved_tab: SavedTab, number: int, page: Page, origins: OriginStorage, report: TabReport
) -> None:
    with suppress(errors.Error):
        await page.wait_for_load_state("load", timeout=LOAD_SECONDS * 1000)
    try:
        world = await origins.watch.world(page)
        result = await world.run("restorePage", saved_tab.url, saved_tab.page, dict(RETRY_LIMITS))
    except WorldError:
        report.lost.append(f"the form fields of tab {number} (the page moved on)")
        return
    report.fields = int(result["fields"])
    report.scrolled = bool(result["scrolled"])
    if result["unfilled"]:
        report.lost.append(f"{plural(result['unfilled'], 'form field')} of tab {number}")
    if result["unscrolled"]:
        report.lost.append(f"scroll positions of tab {number}")


def _without_query(url: str) -> str:
    """Return an address without query and fragment, which may hold secrets of the page."""
    return url.partition("#")[0].partition("?")[0][:200]


def _first_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return first.partition(": ")[2][:200].partition("?")[0] or first[:200]
