"""Opening pages so that a cancelled caller leaves none open, and waiting on a page only while it responds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Page

T = TypeVar("T")


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


__all__ = ["new_page", "close_if_cancelled", "cancel_when_stopped"]
