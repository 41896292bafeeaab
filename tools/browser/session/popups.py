"""Notice of the windows that pages open, before the action that opened them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from ..devtools.interception import RequestInterceptor
from ..devtools.world import send_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from ..snapshot.storage_watch import ContextWatch
    from .tab_list import Tabs


class Popups:
    """Tells sessions of one browser which windows their pages are opening. Lives as long as the browser.

    The browser reports a window before it answers the click that opened it. Playwright reports its page only when that has
    loaded, and no event before the page's first request, which an empty page never makes.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tabs: dict[str, Tabs] = {}
        self._listening = False
        self._starting = anyio.Lock()

    def __repr__(self) -> str:
        return f"<Popups contexts={len(self._tabs)}>"

    def follow(self, tabs: Tabs, watch: ContextWatch, *, spawn: Callable[..., None]) -> None:
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
                self._tabs[context_id] = tabs

        def unregister(_: object) -> None:
            closed.set()
            for context_id in ids:
                self._tabs.pop(context_id, None)

        tabs.context.on("close", unregister)
        tabs.context.on("page", lambda page: None if ids else spawn(register, page))
        for page in tabs.context.pages[:1]:
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
        tabs = self._tabs.get(target.get("browserContextId", ""))
        # A target with a subtype is only prerendered.
        if tabs is None or not target.get("openerId") or target.get("subtype"):
            return
        tabs.expect_window(target["targetId"])

    def _on_destroyed(self, event: dict[str, Any]) -> None:
        for tabs in self._tabs.values():
            tabs.record_closed(event["targetId"])
