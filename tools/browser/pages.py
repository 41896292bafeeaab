"""Opening a page that is closed again when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page


async def new_page(context: BrowserContext) -> Page:
    """Open an empty page. When this is cancelled, the page is closed as soon as it is there.

    Raises:
        playwright's Error: the context is gone.
    """
    # What the browser was told to open, it opens, whether it is waited for or not.
    opening = asyncio.ensure_future(context.new_page())
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[Page]) -> None:
    if not _failed(opening):
        asyncio.ensure_future(opening.result().close()).add_done_callback(_failed)


def _failed(done: asyncio.Future[Any]) -> bool:
    return done.cancelled() or done.exception() is not None


__all__ = ["new_page"]
