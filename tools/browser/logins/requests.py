"""The requests of a context to the sites of a login that have no answer yet.

A login whose cookie changes with each answer is lost if a request is cut off before the headers of its answer arrived: the
browser has not stored the new cookie, or sends the request again with the old one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from .sites import LoginSites

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Request, Response

ANSWER_SECONDS: Final = 0.5
"""Seconds for the pages to answer; one with an open dialog never does."""
LOGIN_PATH: Final = re.compile(r"(^|/)(log|sign)[-_]?(in|on)([/.]|$)", re.IGNORECASE)


class OpenRequests:
    """Follows the requests of all pages and workers of a context, until close()."""

    def __init__(self, context: BrowserContext, sites: LoginSites) -> None:
        self.on_answer: Callable[[], None] = lambda: None
        """Called when the headers of an answer have arrived, with the cookies that they set."""
        self.on_doubt: Callable[[str], None] = lambda _: None
        """Called with the reason when a site seems not to know the login any more."""
        self._context = context
        self._sites = sites
        self._open: set[Request] = set()
        self._change = anyio.Event()
        context.on("request", self._begin)
        context.on("response", self._answer)
        context.on("requestfailed", self._end)

    def close(self) -> None:
        self._context.remove_listener("request", self._begin)
        self._context.remove_listener("response", self._answer)
        self._context.remove_listener("requestfailed", self._end)

    def _begin(self, request: Request) -> None:
        if self._sites.has_address(request.url):
            self._open.add(request)
        former = request.redirected_from
        if former is not None and request.resource_type == "document":
            is_ours = self._sites.has_address(former.url) and not _is_login_page(former.url)
            if is_ours and _is_login_page(request.url):
                self.on_doubt("a page of its site led to a login page")

    def _answer(self, response: Response) -> None:
        if self._sites.has_address(response.url):
            self._end(response.request)
            self.on_answer()
            kind = response.request.resource_type
            if response.status == 401 and kind in ("document", "fetch", "xhr"):
                self.on_doubt("its site answered 401")

    def _end(self, request: Request) -> None:
        if request in self._open:
            self._open.discard(request)
            self._change.set()
            self._change = anyio.Event()

    async def drain(self, seconds: float) -> bool:
        """Wait until each request that was sent has the headers of its answer. Return False if `seconds` are over.

        New ones are blocked meanwhile.
        """
        await self._flush()
        # A closed page does not tell the end of its requests.
        self._open = {request for request in self._open if not _is_gone(request)}
        with anyio.move_on_after(seconds):
            while self._open:
                await self._change.wait()
        return not self._open

    async def _flush(self) -> None:
        """Have every page and worker answer: by then the events of the requests that they have sent are here."""

        async def ask(evaluate: Callable[[str], Awaitable[object]]) -> None:
            with suppress(Exception):
                await evaluate("1")

        with anyio.move_on_after(ANSWER_SECONDS):
            async with anyio.create_task_group() as tasks:
                for page in self._context.pages:
                    for target in (*page.frames, *page.workers):
                        tasks.start_soon(ask, target.evaluate)


def _is_login_page(url: str) -> bool:
    return LOGIN_PATH.search(urlsplit(url).path) is not None


def _is_gone(request: Request) -> bool:
    """Return whether the page of a request is closed. The requests of workers have none."""
    with suppress(Exception):
        return request.frame.page.is_closed()
    return False
