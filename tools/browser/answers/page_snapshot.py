"""Reading the accessibility snapshot of a page, and the form in which an answer shows it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from .. import errors
from ..errors import BrowserToolFailed, describe_error
from ..secrets.snapshot_line import mask_fields
from .naming import add_name_refs
from .outline import outline

if TYPE_CHECKING:
    from playwright.async_api import Locator

    from ..session.session import BrowserSession
    from ..session.tab import Tab

Mode = Literal["auto", "full", "diff", "none"]

TOKEN: Final = 4
"""The characters that count as one token."""
ERROR_TOKENS: Final = 1000
"""The most tokens of a page in an error."""
OUTLINE_TOKENS: Final = 1500
"""The most tokens of an outline where no element was acted on, since the caller does not look for anything yet."""
UNCHANGED: Final = "(nothing changed)"
BODY_SECONDS: Final = 0.3
"""Seconds without a snapshot after which the page is asked whether it has a body at all."""
BODILESS: Final = (
    """!document.body && (document.readyState !== "loading" || !document.documentElement)"""
)

_REF_MARK: Final = re.compile(r"\[ref=(?=(?:f\d+)?e\d+\])")


def fit(
    snapshot: str,
    tokens: int,
    ref: str | None = None,
    *,
    texts: bool = False,
    is_overview: bool = False,
) -> str:
    """Return a snapshot if it has at most so many tokens, else its outline, as outline() makes it.

    The outline of an overview is shorter.
    """
    limit = tokens * TOKEN
    if len(snapshot) <= limit:
        return snapshot
    if is_overview:
        limit = min(limit, OUTLINE_TOKENS * TOKEN)
    return outline(snapshot, limit, ref, texts=texts)


def shows_difference(diff: str, snapshot: str, mode: Mode, tokens: int) -> bool:
    """Return whether to show the difference to the snapshot that was shown before, instead of the snapshot."""
    if mode == "auto":
        return len(diff) < min(len(snapshot), tokens * TOKEN)
    return mode == "diff"


async def read_snapshot(
    session: BrowserSession, tab: Tab, locator: Locator | None = None, **options: Any
) -> str:
    """Return the accessibility snapshot of a page or an element as finish_snapshot() does.

    Raises:
        BrowserToolFailed: The page does not answer.
    """
    await session.require_unblocked(tab)
    seconds = session.config.action_seconds
    source = locator or tab.page
    options["timeout"] = seconds * 1000
    take = partial(source.aria_snapshot, mode="ai", **options)
    try:
        text = await (take() if locator else _read_page(session, tab, take, options))
    except errors.Error as error:
        if isinstance(error, errors.TimeoutError) and not tab.pending_url:
            # Playwright's snapshot script is still running, and the page answers nothing until a running script ends.
            await session.free_stuck_page()
            raise BrowserToolFailed(
                f"No snapshot: it took longer than {seconds:g} seconds. One of a part of the page (target) takes less."
            ) from None
        raise BrowserToolFailed(
            f"No snapshot: {describe_error(error)}{tab.navigation_hint}"
        ) from None
    return finish_snapshot(session, tab, text)


async def _read_page(
    session: BrowserSession,
    tab: Tab,
    take: Callable[[], Awaitable[str]],
    options: Mapping[str, Any],
) -> str:
    """Return the snapshot of a page. A page without a body, such as an SVG image, is read from its root element.

    Playwright itself would wait for the body until the timeout.
    """

    async def leave_bodiless() -> None:
        with suppress(errors.Error):
            if await tab.page.evaluate(BODILESS):
                scope.cancel()

    with anyio.CancelScope() as scope:
        # Unlike a task, a timer adds no delay for a small page.
        start_check = partial(session.spawn, leave_bodiless)
        timer = asyncio.get_running_loop().call_later(BODY_SECONDS, start_check)
        try:
            return await take()
        finally:
            timer.cancel()
    root = tab.page.locator(":root")
    if not await root.count():
        return ""
    return await root.aria_snapshot(mode="ai", **options)


def finish_snapshot(session: BrowserSession, tab: Tab, text: str) -> str:
    """Return a snapshot as callers see it: without secrets, and with refs that are unique in the session.

    Each page numbers its elements from 1, so a ref is prefixed with the number of its restoration and of its tab;
    the number 1 is left out.
    """
    text = add_name_refs(text)
    prefix = f"g{session.generation}" if session.generation > 1 else ""
    prefix += f"t{tab.number}" if tab.number > 1 else ""
    if prefix:
        text = _REF_MARK.sub(f"[ref={prefix}", text)
    if tab.secret_fields:
        text = mask_fields(text, tab.secret_fields)
    return session.secrets.mask_snapshot(text)
