"""Screenshots of sessions in this process, taken for the user of the machine, without an effect on their callers."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from ...sessions.errors import ServiceNotBound, ServiceUnavailable, SessionBusy
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.live.binding import Binding
from ...sessions.live.session import LiveSession
from ...sessions.records import Principal
from ...sessions.registry import Registry
from ...sessions.transitions.pause import PauseCause
from ...tools.browser.connection import BrowserConnection
from ...tools.browser.screencast.page_view import PictureKind, take_picture
from ...tools.browser.service import BrowserService

CAUSE = PauseCause("screenshot")


async def take_screenshot(
    registry: Registry,
    principal: Principal,
    session_id: str,
    *,
    kind: PictureKind,
    full_page: bool,
) -> JSON:
    """Take a picture of a session's current page. A paused session is resumed for it and paused again.

    Its idle time does not change. The journal records only that it was resumed and paused.

    Raises:
        SessionError: there is no such session, or it has no page to show.
    """
    session = await registry.find(principal, session_id)
    async with _resumed_session(registry, session):
        session = await registry.ready(principal, session.id)
        live = await registry.connector.connect_for_call(session, _find_browser(session))
        # With this lock the session is not paused meanwhile; calls go on.
        async with session.changing:
            if session.ownership_ended.is_set() or not live.usable:
                raise SessionBusy("The session is changing.", session_id=session.id)
            assert isinstance(live.connection, BrowserConnection)
            picture = await take_picture(live.connection.session, kind=kind, full_page=full_page)
    data = base64.b64encode(picture.data).decode()
    return {"picture": data, "url": picture.url, "title": picture.title}


@asynccontextmanager
async def _resumed_session(registry: Registry, session: LiveSession) -> AsyncGenerator[None]:
    """Resume a paused session for the block and pause it again at the end, unless it was used meanwhile."""
    if session.status is not Status.PAUSED:
        yield
        return
    used_at = session.idle_since
    try:
        _find_browser(session)
        await registry.pausing.resume(session, cause=CAUSE.name)
        resumed_at = session.idle_since
        try:
            yield
        finally:
            if session.idle_since == resumed_at and not session.in_flight:
                session.idle_since = session.record.used_at = used_at
                with anyio.CancelScope(shield=True):
                    await registry.pausing.pause(session, CAUSE)
    finally:
        with anyio.CancelScope(shield=True):
            await registry.pausing.give_back(session)


def _find_browser(session: LiveSession) -> Binding:
    """Return the binding of the browser that a session uses.

    Raises:
        ServiceNotBound: it uses no browser.
        ServiceUnavailable: no connection of its browser was ever opened.
    """
    bindings = [b for b in session.bindings.values() if isinstance(b.service, BrowserService)]
    if not bindings:
        raise ServiceNotBound("The session uses no browser of this process.", session_id=session.id)
    for binding in bindings:
        if binding.record.generation:
            return binding
    raise ServiceUnavailable(
        "The session has opened no page yet.",
        session_id=session.id,
        recovery="Go to one first, with browser_navigate.",
    )
