"""The first request of a context, which makes it known to the filtering proxy.

The browser is told the context's credentials for that request alone and remembers them. Playwright, when given them, would
stop every request on its way and turn the browser's cache off, to be there when they are asked for.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from .egress.refusal import GREETING
from .world import asked

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .origins import Origins
    from .proxy import Grant

logger = logging.getLogger("statehold.browser")

SECONDS: Final = 3.0

_GREET: Final = "url => fetch(url, {mode: 'no-cors'}).then(() => true)"


class Greeting:
    """Greets the proxy for one context, before its first page asks for anything. Lives as long as the context."""

    def __init__(self, grant: Grant, origins: Origins) -> None:
        self._grant = grant
        self._origins = origins
        self._sending = anyio.Lock()

    @property
    def due(self) -> bool:
        return not self._grant.known

    async def send(self, page: Page | None = None) -> None:
        """Send it from a new page. One that failed is sent again from a page of its own, for which no site has made rules.

        Without it the requests of the context fail; it stays due.
        """
        async with self._sending:
            if not self.due:
                return
            with anyio.move_on_after(SECONDS), suppress(Exception):
                if page is not None:
                    await self._send(page)
                else:
                    async with self._origins.page() as own:
                        await self._send(own)
        if self.due:
            logger.debug("a context did not greet its proxy")

    async def _send(self, page: Page) -> None:
        session = (await self._origins.watch.world(page)).session
        answer = {
            "response": "ProvideCredentials",
            "username": self._grant.username,
            "password": self._grant.password,
        }

        async def challenged(event: dict[str, Any]) -> None:
            given = {"requestId": event["requestId"], "authChallengeResponse": answer}
            with suppress(Exception):
                await asked(session, "Fetch.continueWithAuth", given)

        async def paused(event: dict[str, Any]) -> None:
            with suppress(Exception):
                await asked(session, "Fetch.continueRequest", {"requestId": event["requestId"]})

        session.on("Fetch.authRequired", challenged)
        session.on("Fetch.requestPaused", paused)
        try:
            wanted = {"handleAuthRequests": True, "patterns": [{"urlPattern": GREETING}]}
            await asked(session, "Fetch.enable", wanted)
            await page.evaluate(_GREET, GREETING)
        finally:
            session.remove_listener("Fetch.authRequired", challenged)
            session.remove_listener("Fetch.requestPaused", paused)
            with anyio.move_on_after(SECONDS, shield=True), suppress(Exception):
                await asked(session, "Fetch.disable")


__all__ = ["Greeting"]
