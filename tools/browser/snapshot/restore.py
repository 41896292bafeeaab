"""Restoring a saved browser context: logins and the current tab at once, the other tabs when they are first used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ....sessions.json_codec import JSON
from ....sessions.one_line import plural
from ....sessions.services import RestoreReport
from .. import errors
from ..devtools.pages import close_context, new_context
from .model import ContextSnapshot
from .saved_storage import OriginStorage
from .saved_tab import DormantTab, TabReport, load_tab

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

CLOSE_SECONDS: Final = 3.0
ALWAYS_LOST: Final = "what the scripts of the pages held in memory"


@dataclass(slots=True)
class RestoredContext:
    """A restored context. Its owner closes the context; nothing else has to be closed."""

    context: BrowserContext
    origins: OriginStorage
    tabs: list[Page | DormantTab]
    current: int
    report: RestoreReport


async def restore_context(
    browser: Browser,
    context_snapshot: ContextSnapshot | None,
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
    state = context_snapshot or ContextSnapshot()
    context = await new_context(browser, **context_options)
    try:
        origins = OriginStorage(context, dormant=state.origins)
        if prepare is not None:
            await prepare(context, origins)
        return await _restore(context, origins, state, seconds)
    except BaseException:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await close_context(context)
        raise


async def attach_context(
    browser: Browser, *, prepare: Callable[[BrowserContext, OriginStorage], Awaitable[None]]
) -> RestoredContext:
    """Return the context of the tabs that are open in a browser, unchanged. It is not to be closed."""
    context = browser.contexts[0]
    origins = OriginStorage(context)
    await prepare(context, origins)
    return RestoredContext(context, origins, list(context.pages), 0, RestoreReport())


async def _restore(
    context: BrowserContext, origins: OriginStorage, state: ContextSnapshot, seconds: float
) -> RestoredContext:
    now = time.time()
    valid_cookies = [cookie for cookie in state.cookies if not 0 <= cookie.get("expires", -1) < now]
    state = replace(state, cookies=valid_cookies)
    refused_cookies = await add_cookies(context, state.cookies)
    # Their losses are reported now; the next snapshot must not report them again.
    saved_tabs = [replace(tab, lost=[]) for tab in state.tabs]
    tabs: list[Page | DormantTab] = [
        DormantTab(tab, number, context, origins) for number, tab in enumerate(saved_tabs)
    ]
    current = min(state.current, len(tabs) - 1) if tabs else 0
    tab_report = TabReport()
    if tabs or origins.dormant:
        page = await context.new_page()
        await origins.attach(page)
        if tabs:
            tab_report = await load_tab(saved_tabs[current], current, page, origins, seconds)
        tabs[current : current + 1] = [page]
    restore_report = RestoreReport(
        _describe_restored(state, tab_report, refused_cookies),
        ", ".join(_describe_lost(state, tab_report, refused_cookies) + origins.take_failures()),
    )
    return RestoredContext(context, origins, tabs, current, restore_report)


async def add_cookies(context: BrowserContext, cookies: Sequence[JSON]) -> int:
    """Add cookies. Return the number of those that the browser refused."""
    try:
        if cookies:
            await context.add_cookies(cast("Any", cookies))
        return 0
    except errors.Error:
        # The browser refuses all cookies if one is not acceptable: add them one by one.
        refused_count = 0
        for cookie in cookies:
            try:
                await context.add_cookies(cast("Any", [cookie]))
            except errors.Error:
                refused_count += 1
        return refused_count


async def delete_cookies(context: BrowserContext, cookies: Iterable[Mapping[str, Any]]) -> None:
    """Delete cookies. Playwright's own way deletes all, and adds the others again as they were, also those that changed.

    Raises:
        playwright's Error: The browser is gone.
    """
    ended = [{**cookie, "expires": 1} for cookie in cookies]
    if ended:
        await context.add_cookies(cast("Any", ended))


def _describe_restored(state: ContextSnapshot, report: TabReport, refused_cookies: int) -> str:
    words: list[str] = []
    if state.tabs:
        dormant = len(state.tabs) - 1
        remark = f" ({dormant} of them when first used)" if dormant else ""
        words.append(plural(len(state.tabs), "tab") + remark)
    if len(state.cookies) > refused_cookies:
        words.append(plural(len(state.cookies) - refused_cookies, "cookie"))
    if state.origins:
        words.append(f"the storage of {plural(len(state.origins), 'site')}")
    if report.fields:
        words.append(plural(report.fields, "form field"))
    if report.scrolled:
        words.append("the scroll position")
    return ", ".join(words)


def _describe_lost(state: ContextSnapshot, report: TabReport, refused_cookies: int) -> list[str]:
    losses = [*state.activities, *state.lost]
    for number, tab in enumerate(state.tabs):
        losses += [f"{part} of tab {number}" for part in tab.lost]
    losses += report.lost
    if refused_cookies:
        losses.append(plural(refused_cookies, "cookie"))
    if any(len(tab.history) > 1 for tab in state.tabs):
        losses.append("back and forward (going back loads the pages again)")
    return [*losses, ALWAYS_LOST] if state.tabs else losses
