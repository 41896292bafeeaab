"""Restoring a saved browser context: logins and the current tab at once, the other tabs when they are first used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ....sessions.json_codec import JSON
from ....sessions.services import RestoreReport
from .model import ContextSnapshot
from .storage import OriginStorage
from .tab import SleepingTab, TabReport, counted, load_tab

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

CLOSE_SECONDS: Final = 3.0
ALWAYS_LOST: Final = "what the scripts of the pages held in memory"


@dataclass(slots=True)
class RestoredContext:
    """A restored context. Its owner closes the context; nothing else has to be closed."""

    context: BrowserContext
    origins: OriginStorage
    tabs: list[Page | SleepingTab]
    current: int
    report: RestoreReport


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
        return await _restore(context, origins, given, seconds)
    except BaseException:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await context.close()
        raise


async def _restore(
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
    report = TabReport()
    if tabs or origins.asleep:
        page = await context.new_page()
        await origins.attach(page)
        if tabs:
            report = await load_tab(saved[current], current, page, origins, seconds)
        tabs[current : current + 1] = [page]
    words = RestoreReport(
        _describe_restored(given, report, refused),
        ", ".join(_describe_lost(given, report, refused) + origins.take_failures()),
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


def _describe_restored(given: ContextSnapshot, report: TabReport, refused: int) -> str:
    words: list[str] = []
    if given.tabs:
        asleep = len(given.tabs) - 1
        later = f" ({asleep} of them when first used)" if asleep else ""
        words.append(counted(len(given.tabs), "tab") + later)
    if len(given.cookies) > refused:
        words.append(counted(len(given.cookies) - refused, "cookie"))
    if given.origins:
        words.append(f"the storage of {counted(len(given.origins), 'site')}")
    if report.fields:
        words.append(counted(report.fields, "form field"))
    if report.scrolled:
        words.append("the scroll position")
    return ", ".join(words)


def _describe_lost(given: ContextSnapshot, report: TabReport, refused: int) -> list[str]:
    lost = [*given.activities, *given.lost]
    for number, tab in enumerate(given.tabs):
        lost += [f"{what} of tab {number}" for what in tab.lost]
    lost += report.lost
    if refused:
        lost.append(counted(refused, "cookie"))
    if any(len(tab.history) > 1 for tab in given.tabs):
        lost.append("back and forward (going back loads the pages again)")
    return [*lost, ALWAYS_LOST] if given.tabs else lost


__all__ = ["RestoredContext", "restore_context"]
