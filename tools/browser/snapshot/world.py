"""Our own view of a page: a JavaScript world that shares the DOM with the page's scripts and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio

from ....sessions.json_codec import JSON

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

NAME: Final = "statehold"
ATTEMPTS: Final = 3
SWAPS: Final = 10
SWAP_SECONDS: Final = 0.02
"""How often, and how long after, a browser is asked again that is just giving a tab another renderer."""
_SCRIPTS: Final = ("secrets.js", "places.js", "fields.js", "state.js")
_FOLDER: Final = Path(__file__).parent / "page"
_BODY: Final = "\n".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
SOURCE: Final = f"""(() => {{
  "use strict";

{_BODY}}})()"""
"""One expression, evaluated in a world of its own in the page: it shares DOM and storage with the page's scripts, but none
of their objects, so that they can neither see nor bend it."""


class WorldError(Exception):
    """Raised when the page threw or navigated away."""


async def asked(session: CDPSession, method: str, params: JSON | None = None) -> JSON:
    """Send one DevTools command and return its result."""
    untyped = cast("Any", session)
    return cast("JSON", await untyped.send(method, params))


class World:
    """What our scripts can do in one page. Lives as long as the page; each document gets it anew.

    Nothing here has a deadline: a page in an endless loop or with an open dialog never answers `run`, but its `history`
    is known to the browser.
    """

    def __init__(self, session: CDPSession, frame: str, context: str) -> None:
        self._session = session
        self._frame = frame
        self.context = context
        """The DevTools id of the browser context, which Playwright does not tell."""
        self._before: list[str] = []
        self._after: list[str] = []

    @staticmethod
    async def of(page: Page) -> World:
        """Open one for a page.

        Raises:
            playwright's Error: the page is gone.
        """
        session = await page.context.new_cdp_session(page)
        target = (await asked(session, "Target.getTargetInfo"))["targetInfo"]
        return World(session, target["targetId"], target.get("browserContextId", ""))

    async def run(self, function: str, *arguments: object) -> Any:
        """Call a function of our scripts in the current document of the main frame.

        Raises:
            WorldError: it threw, or there was no document that stayed for long enough.
            playwright's Error: the page is gone.
        """
        from playwright.async_api import Error

        given = ", ".join(json.dumps(argument) for argument in arguments)
        expression = f"({SOURCE}).{function}({given})"
        for attempt in range(ATTEMPTS):
            try:
                return await self._evaluate(expression)
            except Error as error:
                if "closed" in error.message:
                    raise
                if attempt == ATTEMPTS - 1:
                    raise WorldError(error.message) from error
        raise AssertionError("unreachable")

    def at(self, frame: str) -> World:
        """Return the same in another frame of the page. It has no history of its own."""
        return World(self._session, frame, self.context)

    async def opens(self, url: str) -> bool:
        """Let the page open a window, of which its scripts know nothing. Returns whether it may."""
        return bool(await self._evaluate(f"!!open({json.dumps(url)})"))

    async def frames(self) -> list[tuple[str, str]]:
        """Return (id, origin) of frames of other origins than what is around them, as far as they share its process.

        Raises:
            playwright's Error: the page is gone.
        """
        found: list[tuple[str, str]] = []

        def walk(tree: JSON, around: str | None) -> None:
            for child in tree.get("childFrames", ()):
                origin = origin_of(child["frame"]["url"]) or around
                if origin is not None and origin != around:
                    found.append((child["frame"]["id"], origin))
                walk(child, origin)

        tree = (await asked(self._session, "Page.getFrameTree"))["frameTree"]
        walk(tree, origin_of(tree["frame"]["url"]))
        return found

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

    async def interrupt(self) -> None:
        """End the script that the page runs at this moment, ours or its own; where it runs none, the next one.

        The browser does that between two steps of the script, so that it also ends one that would never end.
        """
        await asked(self._session, "Runtime.terminateExecution")

    async def stop(self) -> None:
        """Let the tab load nothing more, also not the page that it is going to."""
        await asked(self._session, "Page.stopLoading")

    async def history(self) -> tuple[list[JSON], int]:
        """Return the entries of the tab's history, oldest first, and which one is current.

        Those that the browser can go to have an `id`; of those that begin() added there is only the `url`.

        Raises:
            playwright's Error: the browser does not tell.
        """
        found = await self._asked("Page.getNavigationHistory")
        entries, index = cast("list[JSON]", found["entries"]), int(found["currentIndex"])
        # What came after is left as soon as the tab goes elsewhere.
        after = self._after if len(entries) == 1 else []
        if index and entries[0]["url"] == "about:blank":
            # Every tab begins with it; nobody went there.
            entries, index = entries[1:], index - 1
        added = [[{"url": url} for url in urls] for urls in (self._before, after)]
        return [*added[0], *entries, *added[1]], len(self._before) + index

    async def begin(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Make the page that is shown the only one that the browser knows, between addresses that only we know.

        Raises:
            playwright's Error: the browser knows others besides; the addresses are added all the same.
        """
        self._before, self._after = list(before), list(after)
        await self._asked("Page.resetNavigationHistory")

    async def _asked(self, method: str) -> JSON:
        from playwright.async_api import Error

        for _ in range(SWAPS):
            try:
                return await asked(self._session, method)
            except Error as error:
                if "Not attached to an active page" not in error.message:
                    raise
            await anyio.sleep(SWAP_SECONDS)
        return await asked(self._session, method)


def origin_of(url: str) -> str | None:
    """Return the origin of a web address as the browser writes it, None where nothing can be stored."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc:
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
    return None


def without_login(url: str) -> str:
    """Return an address without the name and password that it may have."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if "@" in parts.netloc:
            return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return url


__all__ = ["World", "WorldError", "asked", "origin_of", "without_login"]
