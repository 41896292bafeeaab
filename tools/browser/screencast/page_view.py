"""The pages of a session for a person who looks in from a chat: addresses, and a small picture of the current page."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from ....sessions.errors import ServiceUnavailable
from ....sessions.one_line import cut_line
from ....sessions.services import PageView
from .. import errors
from ..answers.answer import ADDRESS, TITLE
from ..errors import describe_error
from ..tools.snapshot import clip_of, fonts_loaded

if TYPE_CHECKING:
    from ..session.session import BrowserSession
    from ..session.tab import Tab

PictureKind = Literal["png", "jpeg", "webp"]

PICTURE_SECONDS: Final = 15.0
FIRST_SECONDS: Final = 2.0
"""Seconds for the first attempt, and then for a pending navigation to load."""
FONT_SECONDS: Final = 1.0
PICTURE_BYTES: Final = 20 * 2**20


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A picture of a page, with the page's address and title."""

    data: bytes
    url: str
    title: str


async def take_picture(
    session: BrowserSession,
    *,
    kind: PictureKind = "png",
    full_page: bool = False,
    quality: int = 90,
) -> PagePicture:
    """Take a picture of the current page, even during a call. Opens no page and adds no event to the caller's answers.

    `quality` is that of a jpeg, 0 to 100.

    Raises:
        ServiceUnavailable: There is no page, a dialog blocks it, no picture could be taken in time, or it is too large.
    """
    tab = session.tabs.current
    if tab is None or tab.crashed:
        raise _unavailable(
            "The session has no page open.", "Go to one first, with browser_navigate."
        )
    if tab.modal_text is not None:
        # A dialog blocks the page until it is answered.
        raise _unavailable(f"The page waits: {tab.modal_text}.", "Answer it first.")
    try:
        with anyio.fail_after(PICTURE_SECONDS):
            data = await _take_with_retry(tab, kind, full_page, quality)
            picture = PagePicture(data, tab.page.url, await session.title(tab))
    except TimeoutError:
        raise _unavailable(
            f"The page did not show itself within {PICTURE_SECONDS:g} seconds.", _LATER
        ) from None
    except errors.Error as error:
        raise _unavailable(f"No picture was taken: {describe_error(error)}.", _LATER) from None
    if len(picture.data) > PICTURE_BYTES:
        raise _unavailable("The picture is too large.", "Leave out the full page, or take a jpeg.")
    return picture


_LATER: Final = "Try again in a moment."


async def _take_with_retry(tab: Tab, kind: PictureKind, full_page: bool, quality: int) -> bytes:
    """Take the picture. Try once more if the page navigated meanwhile: the browser then fails, or never answers."""
    with suppress(errors.Error), anyio.move_on_after(FIRST_SECONDS):
        return await _take(tab, kind, full_page, quality)
    with suppress(errors.Error):
        await tab.page.wait_for_load_state(timeout=FIRST_SECONDS * 1000)
    return await _take(tab, kind, full_page, quality)


async def _take(tab: Tab, kind: PictureKind, full_page: bool, quality: int) -> bytes:
    await fonts_loaded(tab.page, FONT_SECONDS)
    options: dict[str, Any] = {"type": kind, "timeout": PICTURE_SECONDS * 1000, "scale": "css"}
    if kind == "jpeg":
        options["quality"] = quality
    if full_page:
        options |= {"full_page": True, "clip": await clip_of(tab.page, "css")}
    return await tab.page.screenshot(**options)


def _unavailable(message: str, recovery: str) -> ServiceUnavailable:
    return ServiceUnavailable(message, recovery=recovery)


QUALITIES: Final = (60, 30, 10)
"""The qualities of the JPEG that are tried until the picture is small enough."""
SECONDS: Final = 5.0


async def view_pages(session: BrowserSession, *, most_bytes: int) -> PageView:
    """Return the pages of a session; see Viewable in sessions/services.py."""
    mask, tabs = session.secrets.named.mask, session.tabs
    jpeg: bytes | None = None
    problem: str | None = None
    try:
        with anyio.fail_after(SECONDS):
            jpeg = await _small_picture(session, most_bytes)
        if jpeg is None:
            problem = "The picture is too large."
    except TimeoutError:
        problem = "The page did not show itself in time."
    except ServiceUnavailable as error:
        problem = mask(error.message)
    current = tabs.current
    return PageView(
        "" if current is None else cut_line(mask(current.url), ADDRESS),
        "" if current is None else cut_line(mask(await session.title(current)), TITLE),
        [cut_line(mask(entry.url), ADDRESS) for entry in tabs.entries],
        tabs.current_index,
        jpeg,
        problem,
    )


async def _small_picture(session: BrowserSession, most_bytes: int) -> bytes | None:
    for quality in QUALITIES:
        picture = await take_picture(session, kind="jpeg", quality=quality)
        if len(picture.data) <= most_bytes:
            return picture.data
    return None
