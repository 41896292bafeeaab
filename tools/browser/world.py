"""Our own view of a page: a JavaScript world that shares the DOM with the page's scripts and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from ...sessions.services import JSON

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

NAME: Final = "statehold"
ATTEMPTS: Final = 3
SOURCE: Final = Path(__file__).with_name("page_state.js").read_text(encoding="utf-8").strip()


class WorldError(Exception):
    """Raised when the page threw, navigated away, or is gone."""


async def asked(session: CDPSession, method: str, params: JSON | None = None) -> JSON:
    """Send one DevTools command and return its result."""
    untyped = cast("Any", session)
    return cast("JSON", await untyped.send(method, params))


class World:
    """What page_state.js can do in one page. Lives as long as the page; each document gets it anew.

    Nothing here has a deadline: a page in an endless loop or with an open dialog never answers `run`, but its `history`
    is known to the browser.
    """

    def __init__(self, session: CDPSession, frame: str, context: str) -> None:
        self._session = session
        self._frame = frame
        self.context = context
        """The DevTools id of the browser context, which Playwright does not tell."""

    @staticmethod
    async def of(page: Page) -> World:
        session = await page.context.new_cdp_session(page)
        target = (await asked(session, "Target.getTargetInfo"))["targetInfo"]
        return World(session, target["targetId"], target.get("browserContextId", ""))

    async def run(self, function: str, *arguments: object) -> Any:
        """Call a function of page_state.js in the current document of the main frame.

        Raises:
            WorldError: it threw, or there was no document that stayed for long enough.
        """
        from playwright.async_api import Error

        given = ", ".join(json.dumps(argument) for argument in arguments)
        expression = f"({SOURCE}).{function}({given})"
        for attempt in range(ATTEMPTS):
            try:
                return await self._evaluate(expression)
            except Error as error:
                if attempt == ATTEMPTS - 1 or "closed" in error.message:
                    raise WorldError(error.message) from error
        raise AssertionError("unreachable")

    async def ask(self, expression: str) -> Any:
        """Evaluate an expression in the world of the page itself, which answers what it likes.

        Playwright does this as well, and first brings scripts of its own into each document.

        Raises:
            WorldError: it threw.
            playwright's Error: the page navigated away, or is gone.
        """
        return await self._value({"expression": expression})

    async def _evaluate(self, expression: str) -> Any:
        place = {"frameId": self._frame, "worldName": NAME}
        world = await asked(self._session, "Page.createIsolatedWorld", place)
        return await self._value(
            {"expression": expression, "contextId": world["executionContextId"]}
        )

    async def _value(self, params: JSON) -> Any:
        wanted = {**params, "awaitPromise": True, "returnByValue": True}
        answer = await asked(self._session, "Runtime.evaluate", wanted)
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"]
            raise WorldError(thrown.get("exception", {}).get("description") or thrown["text"])
        return answer["result"].get("value")

    async def bypass_workers(self) -> None:
        """Let no service worker answer the requests of the page."""
        await asked(self._session, "Network.enable")
        await asked(self._session, "Network.setBypassServiceWorker", {"bypass": True})

    async def history(self) -> tuple[list[JSON], int]:
        """Return the entries of the tab's history, oldest first, and which one is current."""
        found = await asked(self._session, "Page.getNavigationHistory")
        return cast("list[JSON]", found["entries"]), int(found["currentIndex"])


def origin_of(url: str) -> str | None:
    """Return the origin of a web address as the browser writes it, None where nothing can be stored."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc:
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
    return None


__all__ = ["World", "WorldError", "asked", "origin_of"]
