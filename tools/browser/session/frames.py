"""The search for an element in a page and its frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Page


async def find_element(
    page: Page, locate: Callable[[Frame], Locator], code: str, *, visible: bool = True
) -> str | None:
    """Return Playwright's Python for the first element that `locate` locates in a frame; None if there is none.

    `code` is the Python for all elements that `locate` locates outside of frames. With `visible`, others do not count.
    """
    from playwright.async_api import Error

    for frame in page.frames:
        matches = locate(frame).filter(visible=True) if visible else locate(frame)
        try:
            count = await matches.count()
            if count == 0:
                continue
            if frame is not page.main_frame:
                return f"page.{await matches.first.normalize()}"
            if await locate(frame).count() == 1:
                return code
            only_visible = ".filter(visible=True)" if visible else ""
            return f"{code}{only_visible}{'.first' if count > 1 else ''}"
        except Error:
            # A frame that is being replaced has no elements.
            if frame is page.main_frame or page.is_closed():
                raise
    return None
