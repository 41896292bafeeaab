"""Opening contexts and pages so that a cancelled caller leaves none open, and waiting on them only while they respond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Dialog, Page

T = TypeVar("T")

PROBE_SECONDS: Final = 2.0


async def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """Open an empty context. If this is cancelled, the context is closed as soon as it exists.

    Raises:
        playwright's Error: The browser is gone.
    """
    return await close_if_cancelled(browser.new_context(**options), close_context)


async def close_context(context: BrowserContext) -> None:
    """Close a context after the browser has answered the requests about its cookies, for PROBE_SECONDS at most.

    Chromium never answers such a request once its context is closed, not even one whose caller was cancelled, and the
    driver would keep the context in memory.

    Raises:
        playwright's Error: The browser is gone.
    """
    await context_answers(context, PROBE_SECONDS)
    await context.close()


async def context_answers(context: BrowserContext, seconds: float) -> bool:
    """Return whether the browser answers a request about cookies within `seconds`. It answers them in order."""
    with suppress(Exception), anyio.move_on_after(seconds):
        await context.cookies("http://session.invalid")
        return True
    return False


async def new_page(context: BrowserContext) -> Page:
    """Open an empty page. If this is cancelled, the page is closed as soon as it exists.

    Raises:
        playwright's Error: The context is gone.
    """
    return await close_if_cancelled(context.new_page(), lambda page: page.close())


async def close_if_cancelled(opening: Awaitable[T], close: Callable[[T], Awaitable[object]]) -> T:
    """Await `opening` and return its result. If this is cancelled, the result is closed as soon as it exists."""
    # The browser opens the page even if the wait for it is cancelled.
    task = asyncio.ensure_future(opening)

    def leave(_: object) -> None:
        if not _has_failed(task):
            asyncio.ensure_future(close(task.result())).add_done_callback(_has_failed)

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(leave)
        raise


@contextmanager
def cancel_when_stopped(page: Page, scope: anyio.CancelScope) -> Generator[list[str]]:
    """Cancel the scope when the page opens a dialog or crashes. The yielded list then contains `dialog` or `crash`."""
    causes: list[str] = []

    def ask(_: Dialog) -> None:
        causes.append("dialog")
        scope.cancel()

    def crash(_: Page) -> None:
        causes.append("crash")
        scope.cancel()

    page.on("dialog", ask)
    page.on("crash", crash)
    try:
        yield causes
    finally:
        page.remove_listener("dialog", ask)
        page.remove_listener("crash", crash)


def _has_failed(task: asyncio.Future[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
