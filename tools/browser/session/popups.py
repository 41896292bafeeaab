"""Notice of the windows that pages open, before the action that opened them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ..snapshot.interception import RequestInterceptor
from ..snapshot.world import send_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

    from ..snapshot.watch import ContextWatch


class Opener(Protocol):
    """The receiver of notices about the windows that pages of one context open."""

    context: BrowserContext

    def expect(self, window: str) -> None: ...

    def gone(self, window: str) -> None: ...


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
        known: list[str] = []
        closed = anyio.Event()

        async def learn(page: Page) -> None:
            if known:
                return
            context_id = (await watch.world(page)).context
            await self._listen()
            if not closed.is_set():
                known.append(context_id)
                self._openers[context_id] = opener

        def forget(_: object) -> None:
            closed.set()
            for context_id in known:
                self._openers.pop(context_id, None)

        opener.context.on("close", forget)
        opener.context.on("page", lambda page: None if known else spawn(learn, page))
        for page in opener.context.pages[:1]:
            spawn(learn, page)

    async def _listen(self) -> None:
        async with self._starting:
            if self._listening:
                return
            session = await RequestInterceptor.for_browser(self._browser).session()
            session.on("Target.targetCreated", self._created)
            session.on("Target.targetDestroyed", self._destroyed)
            wanted = {"discover": True, "filter": [{"type": "page"}]}
            await send_command(session, "Target.setDiscoverTargets", wanted)
            self._listening = True

    def _created(self, event: dict[str, Any]) -> None:
        target = event["targetInfo"]
        found = self._openers.get(target.get("browserContextId", ""))
        # A target with a subtype is only prerendered.
        if found is None or not target.get("openerId") or target.get("subtype"):
            return
        found.expect(target["targetId"])

    def _destroyed(self, event: dict[str, Any]) -> None:
        for opener in self._openers.values():
            opener.gone(event["targetId"])


__all__ = ["Opener", "Popups"]
