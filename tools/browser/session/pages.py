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
    return await unless_left(context.new_page(), lambda page: page.close())


async def unless_left(opening: Awaitable[T], close: Callable[[T], Awaitable[object]]) -> T:
    """Await `opening` and return its result. If this is cancelled, the result is closed as soon as it exists."""
    # The browser opens the page even if the wait for it is cancelled.
    task = asyncio.ensure_future(opening)

    def leave(_: object) -> None:
        if not _failed(task):
            asyncio.ensure_future(close(task.result())).add_done_callback(_failed)

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(leave)
        raise


@contextmanager
def unless_stopped(page: Page, scope: anyio.CancelScope) -> Generator[list[str]]:
    """Cancel the scope when the page opens a dialog or crashes. The yielded list then contains `dialog` or `crash`."""
    stopped: list[str] = []

    def ask(_: Dialog) -> None:
        stopped.append("dialog")
        scope.cancel()

    def crash(_: Page) -> None:
        stopped.append("crash")
        scope.cancel()

    page.on("dialog", ask)
    page.on("crash", crash)
    try:
        yield stopped
    finally:
        page.remove_listener("dialog", ask)
        page.remove_listener("crash", crash)


def _failed(done: asyncio.Future[Any]) -> bool:
    return done.cancelled() or done.exception() is not None


__all__ = ["new_page", "unless_left", "unless_stopped"]
