"""The first request of a context, which makes it known to the filtering proxy.

A browser tells a proxy who it is only for requests that are no WebSockets, and remembers what it told. A page that came
from nowhere, such as a `data:` page, could open a WebSocket before anything else was asked.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from .egress.refusal import GREETING

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .proxy import Grant

logger = logging.getLogger("statehold.browser")

SECONDS: Final = 3.0

_GREET: Final = "url => fetch(url, {mode: 'no-cors'}).then(() => true)"


class Greeting:
    """Greets the proxy for one context, once, unless something else was sent first."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._done = False

    @property
    def due(self) -> bool:
        return not (self._done or self._grant.used)

    async def send(self, page: Page) -> None:
        """Send it from a page. One that cannot send it makes WebSockets wait for an ordinary request, and nothing else."""
        self._done = True
        with anyio.move_on_after(SECONDS), suppress(Exception):
            await page.evaluate(_GREET, GREETING)
        if not self._grant.used:
            logger.debug("a context did not greet its proxy")


__all__ = ["Greeting"]
