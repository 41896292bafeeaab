"""Where a page shows something: in itself, or in one of its frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Page


async def shown_as(page: Page, wanted: Callable[[Frame], Locator], code: str) -> str | None:
    """Return how the first of what is wanted, and can be seen, is written in Playwright's Python; None when nothing can.

    `code` is how it is written where it is in no frame.
    """
    from playwright.async_api import Error

    for frame in page.frames:
        found = wanted(frame).filter(visible=True)
        try:
            if await found.count() == 0:
                continue
            if frame is page.main_frame:
                return f"{code}.first"
            return f"page.{await found.first.normalize()}"
        except Error:
            # A frame that is being replaced shows nothing.
            if frame is page.main_frame or page.is_closed():
                raise
    return None


__all__ = ["shown_as"]
