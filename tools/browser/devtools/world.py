"""Our access to a page: an isolated JavaScript world that shares only the DOM with the page's scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio
from pydantic_core import Url

from ....sessions.json_codec import JSON
from .. import errors

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

NAME: Final = "statehold"
MAX_ATTEMPTS: Final = 3
MAX_SWAPS: Final = 10
SWAP_SECONDS: Final = 0.02
"""With MAX_SWAPS, the number of retries and the pause between them while the browser gives a tab another renderer."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ORIGIN: Final = re.compile(r"https?://[^/\\?#@\s]+/?", re.IGNORECASE)
_FOLDER: Final = Path(__file__).parent / "page"
_SCRIPTS: Final = ("secrets.js", "values.js", "storage.js", "fields.js", "tab.js")
_BODY: Final = "\n".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
AT_START: Final = (_FOLDER / "edits.js").read_text("utf-8")
"""The script that runs at the start of each document, in our world."""
SOURCE: Final = f"""globalThis.statehold = (() => {{
  "use strict";

{_BODY}
  return {{ savedTab, savedStorage, restoreStorage, restoreTab, restorePage }};
}})()"""
"""The script that is installed in a document when one of its functions is first called. It shares DOM and storage with the
page's scripts, but none of their objects, so they can neither see nor change it.
"""
_NOT_INSTALLED: Final = "statehold: not installed"


class WorldError(Exception):
    """Raised when the page threw or navigated away."""


async def send_command(session: CDPSession, method: str, params: JSON | None = None) -> JSON:
    """Send one DevTools command and return its result."""
    client = cast("Any", session)
    return cast("JSON", await client.send(method, params))


class World:
    """The interface to our scripts in one page. Lives as long as the page; the scripts are installed once in each document.

    No method has a deadline: a page in an endless loop or with an open dialog never answers run(), but the browser itself
    answers history().
    """

    def __init__(self, session: CDPSession, frame: str, context: str) -> None:
        self._session = session
        self._frame = frame
        self.context = context
        """The DevTools id of the browser context, which Playwright's API lacks."""
        self._before: list[str] = []
        self._after: list[str] = []

    @staticmethod
    async def of(session: CDPSession) -> World:
        """Open the interface to a page by a DevTools session of it.

        Raises:
            playwright's Error: The page is gone.
        """
        target = (await send_command(session, "Target.getTargetInfo"))["targetInfo"]
        await send_command(session, "Page.enable")
        script = {"source": AT_START, "worldName": NAME, "runImmediately": True}
        await send_command(session, "Page.addScriptToEvaluateOnNewDocument", script)
        return World(session, target["targetId"], target.get("browserContextId", ""))

    async def run(self, function: str, *arguments: object) -> Any:
        """Call a function of our scripts in the current document of the main frame.

        Raises:
            WorldError: The function threw, or no document stayed long enough.
            playwright's Error: The page is gone.
        """
        values = ", ".join(json.dumps(argument) for argument in arguments)
        call = f"statehold.{function}({values})"
        for attempt in range(MAX_ATTEMPTS):
            try:
                result = await self._evaluate(f"globalThis.statehold ? {call} : {_NOT_INSTALLED!r}")
                return (
                    await self._evaluate(f"{SOURCE}; {call}")
                    if result == _NOT_INSTALLED
                    else result
                )
            except errors.Error as error:
                if "closed" in error.message:
                    raise
                if attempt == MAX_ATTEMPTS - 1:
                    raise WorldError(error.message) from error
        raise AssertionError("unreachable")

    async def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the main world of the page, whose scripts can forge the answer.

        Unlike Playwright's evaluate(), it does not first install scripts in the document.

        Raises:
            WorldError: The expression threw.
            playwright's Error: The page navigated, or is gone.
        """
        return await self._evaluate_params({"expression": expression})

    async def evaluate_object(self, expression: str) -> str:
        """Evaluate an expression in the main world of the page, and return the DevTools id of the resulting object.

        Raises:
            WorldError: The expression threw.
            playwright's Error: The page navigated, or is gone.
        """
        params = {"expression": expression}
        return _result_of(await send_command(self._session, "Runtime.evaluate", params))["objectId"]

    async def call_on(self, object_id: str, function: str) -> Any:
        """Call a function with such an object as `this`, and return its value, also that of a promise.

        Raises:
            WorldError: The function threw.
            playwright's Error: The page navigated, or is gone.
        """
        params = {"objectId": object_id, "functionDeclaration": function}
        options = {**params, "awaitPromise": True, "returnByValue": True}
        answer = await send_command(self._session, "Runtime.callFunctionOn", options)
        return _result_of(answer).get("value")

    async def _evaluate(self, expression: str) -> Any:
        options = {"frameId": self._frame, "worldName": NAME}
        world = await send_command(self._session, "Page.createIsolatedWorld", options)
        return await self._evaluate_params(
            {"expression": expression, "contextId": world["executionContextId"]}
        )

    async def _evaluate_params(self, params: JSON) -> Any:
        options = {**params, "awaitPromise": True, "returnByValue": True}
        answer = await send_command(self._session, "Runtime.evaluate", options)
        return _result_of(answer).get("value")

    async def has_frame(self, frame: str) -> bool:
        """Return whether the page shows a frame. Raises playwright's Error if the page is gone."""
        trees = [(await send_command(self._session, "Page.getFrameTree"))["frameTree"]]
        while trees:
            tree = trees.pop()
            if tree["frame"]["id"] == frame:
                return True
            trees += tree.get("childFrames", ())
        return False

    async def bypass_workers(self) -> None:
        """Let no service worker answer the requests of the page."""
        await send_command(self._session, "Network.enable")
        await send_command(self._session, "Network.setBypassServiceWorker", {"bypass": True})

    async def clear_storage(self, origin: str, kinds: str) -> None:
        """Clear the storage of an origin in the whole context; `kinds` as DevTools names them, separated by commas."""
        options = {"origin": origin, "storageTypes": kinds}
        await send_command(self._session, "Storage.clearDataForOrigin", options)

    async def interrupt(self) -> None:
        """End the script that the page runs now, ours or its own; if it runs none, the next one.

        The browser interrupts the script between two of its steps, so an endless script ends, too.
        """
        await send_command(self._session, "Runtime.terminateExecution")

    async def stop(self) -> None:
        """Stop all loading in the tab, including a pending navigation."""
        await send_command(self._session, "Page.stopLoading")

    async def history(self) -> tuple[list[JSON], int]:
        """Return the entries of the tab's history, oldest first, and the index of the current one.

        Entries that the browser can go to have an `id`; those added by begin() have only a `url`.

        Raises:
            playwright's Error: The browser does not answer.
        """
        history = await self._send_until_attached("Page.getNavigationHistory")
        entries, index = cast("list[JSON]", history["entries"]), int(history["currentIndex"])
        # The entries after the page are dropped as soon as the tab navigates.
        after = self._after if len(entries) == 1 else []
        if index and entries[0]["url"] == "about:blank":
            # The first document of every tab is not a navigation.
            entries, index = entries[1:], index - 1
        addresses = [[{"url": url} for url in urls] for urls in (self._before, after)]
        return [*addresses[0], *entries, *addresses[1]], len(self._before) + index

    async def reset_history(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Make the current page the browser's only history entry, and put addresses that only we know around it.

        Raises:
            playwright's Error: The browser kept other entries; the addresses are added all the same.
        """
        self._before, self._after = list(before), list(after)
        await self._send_until_attached("Page.resetNavigationHistory")

    async def _send_until_attached(self, method: str) -> JSON:
        for _ in range(MAX_SWAPS):
            try:
                return await send_command(self._session, method)
            except errors.Error as error:
                if "Not attached to an active page" not in error.message:
                    raise
            await anyio.sleep(SWAP_SECONDS)
        return await send_command(self._session, method)


def _result_of(answer: JSON) -> JSON:
    if "exceptionDetails" in answer:
        exception = answer["exceptionDetails"]
        raise WorldError(exception.get("exception", {}).get("description") or exception["text"])
    return answer["result"]


def origin_of(url: str) -> str | None:
    """Return the origin of a web address as the browser parses and writes it, or None if such an address has no storage."""
    # The Rust crate below pydantic parses URLs by the standard that browsers follow; urllib does not.
    with suppress(ValueError):
        parts = Url(url)
        if parts.scheme in DEFAULT_PORTS and parts.host:
            port = "" if parts.port == DEFAULT_PORTS[parts.scheme] else f":{parts.port}"
            return f"{parts.scheme}://{parts.host}{port}"
    return None


def is_origin(address: str) -> bool:
    """Return whether an address is an origin and nothing else, such as https://shop.test."""
    return _ORIGIN.fullmatch(address) is not None and origin_of(address) is not None


def without_login(url: str) -> str:
    """Return an address without user name and password."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if "@" in parts.netloc:
            return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return url
