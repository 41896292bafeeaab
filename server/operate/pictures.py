"""The live picture of a session that this process holds, as messages for viewers here and at other nodes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final, Self

import anyio
from pydantic import BaseModel, Field

from ...sessions.errors import InvalidArgument, ServiceNotBound, ServiceUnavailable, SessionBusy
from ...sessions.json_codec import JSON
from ...sessions.live.binding import Binding
from ...sessions.live.session import LiveSession
from ...sessions.records import Principal
from ...sessions.registry import Registry
from ...tools.browser import errors
from ..cluster.node_messages import encode_picture

if TYPE_CHECKING:
    from ...tools.browser.connection import BrowserConnection
    from ...tools.browser.screencast.frames import ScreenUpdate
    from ...tools.browser.screencast.screencast import ScreenViewer


LONGEST_URL: Final = 2000
"""Characters of an address that go with each picture; the address of a `data:` page may have millions."""
LONGEST_TITLE: Final = 200
TITLES_SECONDS: Final = 2.0
"""Seconds between two looks at the titles of pages."""
MAX_FPS: Final = 10.0
"""The pictures a second of a capture, at most."""
PAGE_SECONDS: Final = 10.0
"""Seconds for a new page to open."""


class PictureQuery(BaseModel):
    """The pictures that a viewer wants."""

    fps: Annotated[float, Field(gt=0, le=MAX_FPS, description="Most pictures a second")] = MAX_FPS
    tab: Annotated[
        int | None, Field(ge=1, description="The number of a tab. Default: the current one")
    ] = None


class ViewerQuery(PictureQuery):
    """The pictures that a viewer wants, and the key of the person behind it."""

    person: str = ""


class SessionPictures:
    """The pictures of the sessions of one registry. It keeps nothing between viewers."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @asynccontextmanager
    async def watch(
        self, principal: Principal, session_id: str, query: ViewerQuery
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the messages for one viewer, which end with the browser. A viewer that asks late skips pictures.

        Raises:
            SessionBusy: this process does not hold the session.
            ServiceNotBound, ServiceUnavailable: it has no browser open.
        """
        connection = open_browser(self._registry, principal, session_id)
        async with connection.screencast.watch(
            query.tab, fps=query.fps, person=query.person
        ) as viewer:
            # Two pauses of the same length would add up to twice the age of a picture.
            pause = 1 / query.fps if query.fps < MAX_FPS else 0.0
            yield _Messages(connection, viewer, pause)

    @asynccontextmanager
    async def watch_for_node(
        self, principal: Principal, session_id: str, members: JSON
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Do the same for the viewer of another node, whose query has these members."""
        try:
            query = ViewerQuery.model_validate(members)
        except ValueError:
            raise InvalidArgument("query: it is malformed.") from None
        async with self.watch(principal, session_id, query) as messages:
            yield messages


class _Messages:
    """The messages about the updates of one viewer, with a pause after each."""

    def __init__(self, connection: BrowserConnection, viewer: ScreenViewer, pause: float) -> None:
        self._connection = connection
        self._viewer = viewer
        self._pause = pause
        self._next_at = self._titles_at = anyio.current_time()
        self._titles: dict[object, str] = {}
        """The titles of the tabs that have a page."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        await anyio.sleep_until(self._next_at)
        update = await anext(self._viewer)
        now = anyio.current_time()
        self._next_at = now + self._pause
        if now >= self._titles_at:
            self._titles_at = now + TITLES_SECONDS
            # A page that does not answer delays no picture: its title comes with a later one.
            self._connection.session.spawn(self._read_titles)
        return self._encode(update)

    async def _read_titles(self) -> None:
        session = self._connection.session
        self._titles = {
            # A page with a dialog tells none.
            tab: (await session.title(tab))[:LONGEST_TITLE] or self._titles.get(tab, "")
            for tab in list(session.tabs)
        }

    def _encode(self, update: ScreenUpdate) -> bytes:
        frame, question = update.frame, update.question
        session = self._connection.session
        age = update.age(time.time())
        about: JSON = {
            "state": update.condition.value,
            "tab": update.tab,
            "age_seconds": None if age is None else round(age, 2),
            "tabs": [
                {
                    "index": index,
                    "url": entry.url[:LONGEST_URL],
                    "title": self._titles.get(entry, ""),
                    "current": index == session.tabs.current_index,
                }
                for index, entry in enumerate(session.tabs.entries)
            ],
            "question": None,
            "agent_scripts": session.scripts.state,
            "other_viewers": self._viewer.others,
        }
        if question is not None:
            about["question"] = {
                "kind": question.kind,
                "message": question.message,
                "default": question.default,
                "several": question.takes_several_files,
            }
        if frame is None:
            return encode_picture(about, b"")
        about |= {"number": frame.number, "width": frame.width, "height": frame.height}
        about |= {"scroll_x": frame.scroll_x, "scroll_y": frame.scroll_y}
        return encode_picture(about, frame.jpeg)


def open_browser(registry: Registry, principal: Principal, session_id: str) -> BrowserConnection:
    """Return the open browser of a session of this process.

    Raises:
        SessionBusy: this process does not hold the session.
        ServiceNotBound: the session uses no browser.
        ServiceUnavailable: it has none open.
    """
    session = registry.find_here(principal, session_id)
    if session is None:
        raise SessionBusy("The session is not open.", session_id=session_id)
    return _browser_of(session)


async def open_blank_page(registry: Registry, principal: Principal, session_id: str) -> None:
    """Open a page in the browser of a session of this process, unless it has one, or uses no browser.

    Raises:
        ServiceUnavailable: the browser opens no page.
    """
    from ...tools.browser.errors import describe_error

    with suppress(ServiceNotBound):
        browser = open_browser(registry, principal, session_id).session
        try:
            with anyio.fail_after(PAGE_SECONDS):
                await browser.tabs.ensure()
        except (errors.Error, IndexError, TimeoutError) as error:
            raise ServiceUnavailable(
                f"No page opens: {describe_error(error)}", session_id=session_id
            ) from None


def browser_bindings(session: LiveSession) -> list[Binding]:
    """Return the bindings of a session to browsers."""
    from ...tools.browser.service import BrowserService

    return [b for b in session.bindings.values() if isinstance(b.service, BrowserService)]


def _browser_of(session: LiveSession) -> BrowserConnection:
    from ...tools.browser.connection import BrowserConnection

    bindings = browser_bindings(session)
    if not bindings:
        raise ServiceNotBound("The session uses no browser.", session_id=session.id)
    for binding in bindings:
        live = binding.live
        if live is not None and live.usable and isinstance(live.connection, BrowserConnection):
            return live.connection
    raise ServiceUnavailable("The browser of the session is not open.", session_id=session.id)
