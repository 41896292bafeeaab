"""The pages of a session for a person who looks in from a chat: addresses, and a small picture of the current page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from ...sessions.errors import ServiceUnavailable
from ...sessions.services import PageView
from .answers.answer import ADDRESS, TITLE, to_line
from .picture import take_picture

if TYPE_CHECKING:
    from .session.session import BrowserSession

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
        "" if current is None else to_line(mask(current.url), ADDRESS),
        "" if current is None else to_line(mask(await session.title(current)), TITLE),
        [to_line(mask(entry.url), ADDRESS) for entry in tabs.entries],
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
