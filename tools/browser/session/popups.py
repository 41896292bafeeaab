"""Notice of the windows that pages open, before the action that opened them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ..devtools.interception import RequestInterceptor
from ..devtools.world import send_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

    from ..snapshot.watch import ContextWatch


class Opener(Protocol):
    """The receiver of notices about the windows that pages of one context open."""

    context: BrowserContext

    def expect_window(self, window: str) -> None: ...

    def note_closed(self, window: str) -> None: ...


class Popups:
    """Tells sessions of one browser which windows their pages are opening. Lives as long as the browser.

    The browser reports a window before it answers the click that opened it. Playwright reports its page only when that has
    loaded, and no event before the page's first request, which an empty page never makes.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._openers: dict[str, Opener] = {}
        self._listening = False
        self._starting = anyio.Lock()

    def __repr__(self) -> str:
        return f"<Popups contexts={len(self._openers)}>"

    def follow(self, opener: Opener, watch: ContextWatch, *, spawn: Callable[..., None]) -> None:
        """Notify a session of windows, from shortly after its first page until its context closes."""
        ids: list[str] = []
        closed = anyio.Event()

        async def register(page: Page) -> None:
            if ids:
                return
            context_id = (await watch.world(page)).context
            await self._listen()
            if not closed.is_set():
                ids.append(context_id)
                self._openers[context_id] = opener

        def unregister(_: object) -> None:
            closed.set()
            for context_id in ids:
                self._openers.pop(context_id, None)

        opener.context.on("close", unregister)
        opener.context.on("page", lambda page: None if ids else spawn(register, page))
        for page in opener.context.pages[:1]:
            spawn(register, page)

    async def _listen(self) -> None:
        async with self._starting:
            if self._listening:
                return
            session = await RequestInterceptor.for_browser(self._browser).session()
            session.on("Target.targetCreated", self._on_created)
            session.on("Target.targetDestroyed", self._on_destroyed)
            options = {"discover": True, "filter": [{"type": "page"}]}
            await send_command(session, "Target.setDiscoverTargets", options)
            self._listening = True

    def _on_created(self, event: dict[str, Any]) -> None:
        target = event["targetInfo"]
        opener = self._openers.get(target.get("browserContextId", ""))
        # A target with a subtype is only prerendered.
        if opener is None or not target.get("openerId") or target.get("subtype"):
            return
        opener.expect_window(target["targetId"])

    def _on_destroyed(self, event: dict[str, Any]) -> None:
        for opener in self._openers.values():
            opener.note_closed(event["targetId"])


__all__ = ["Opener", "Popups"]
