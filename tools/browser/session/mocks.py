"""Changes to the network of one session: the offline state, and URLs that are answered here or requested differently."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.json_codec import well_formed
from .. import errors
from .glob import Glob
from .pause_hold import PauseHold

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Request, Route

    from ..snapshot.storage_watch import ContextWatch

MAX_ROUTES: Final = 100
"""The most routes of a session; every request is matched against each of them."""
MOCKED_ROUTE: Final = "a mocked route"
OFFLINE: Final = "the offline state"
EVERYTHING: Final = re.compile("")
UNDO_SECONDS: Final = 3.0

_OURS: Final = ("cookie", "host", "content-length", "connection", "transfer-encoding", "upgrade")


def is_ours(header: str) -> bool:
    """Return whether only the browser and the proxy may set a request header, not a caller."""
    name = header.lower()
    return name in _OURS or name.startswith("proxy-")


@dataclass(frozen=True, slots=True)
class Mock:
    """The treatment of requests that match one URL pattern: an answer from here, or changed headers.

    `headers` belong to the response if the request is answered here, else to the request.
    """

    pattern: str
    status: int | None = None
    body: str | None = None
    content_type: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    removed_headers: tuple[str, ...] = ()

    @property
    def answers(self) -> bool:
        return not (self.status is None and self.body is None and self.content_type is None)

    def __str__(self) -> str:
        facts = {
            "status": self.status,
            "body": self.body
            if self.body is None or len(self.body) <= 100
            else f"{self.body[:100]}...",
            "contentType": self.content_type,
            "addHeaders": json.dumps(self.headers, ensure_ascii=False) if self.headers else None,
            "removeHeaders": ",".join(self.removed_headers) or None,
        }
        details = ", ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        return f"{self.pattern} ({details})"

    async def handle(self, route: Route) -> None:
        """Answer a request or pass it on with changed headers. Does not raise if the page is gone."""
        # The page may be gone before its request is answered.
        with suppress(errors.Error):
            if self.answers:
                await route.fulfill(
                    status=self.status or 200,
                    body=well_formed(self.body or ""),
                    content_type=self.content_type,
                    headers=self.headers,
                )
            else:
                # continue_() would skip a route that refuses schemes.
                await route.fallback(headers=await self._changed_headers(route))

    async def _changed_headers(self, route: Route) -> dict[str, str]:
        dropped_names = {name.lower() for name in (*self.removed_headers, *self.headers)}
        headers = await route.request.all_headers()
        remaining = {
            name: value for name, value in headers.items() if name.lower() not in dropped_names
        }
        return remaining | self.headers


class Mocks:
    """The routes of one context, in the order in which they were added; the last one that matches decides.

    They end with the context and are not restored, so a session is not paused for a while after one was added.
    """

    def __init__(
        self, context: BrowserContext, holds: set[str], *, spawn: Callable[..., None]
    ) -> None:
        self._context = context
        self.pause_hold = PauseHold(MOCKED_ROUTE, holds, spawn=spawn, expire=self._expire)
        self._mocks: list[tuple[Mock, Glob, Callable[[Route], Awaitable[None]]]] = []
        self._are_lifted = False
        self.on_answer: Callable[[Request], None] = lambda _: None
        """Is called with each request that a route answers."""

    def __len__(self) -> int:
        return len(self._mocks)

    def __iter__(self) -> Iterator[Mock]:
        return (mock for mock, *_ in self._mocks)

    async def add(self, mock: Mock) -> None:
        """Mock requests from now on.

        Raises:
            IndexError: The limit is reached.
            ValueError: The pattern is invalid.
        """
        if len(self._mocks) >= MAX_ROUTES:
            raise IndexError(f"there may be at most {MAX_ROUTES} routes; remove one first")
        glob = Glob(mock.pattern)

        # Playwright sets attributes on the object of a bound method, which a frozen dataclass refuses.
        async def handle(route: Route) -> None:
            if mock.answers:
                self.on_answer(route.request)
            await mock.handle(route)

        try:
            await self._context.route(glob, handle)
        except BaseException:
            # After a cancelled wait the route may exist in the driver, unknown to us; remove it.
            with anyio.move_on_after(UNDO_SECONDS, shield=True), suppress(Exception):
                await self._context.unroute(glob, handle)
            raise
        self._mocks.append((mock, glob, handle))
        self.pause_hold.begin()

    async def remove(self, pattern: str | None = None) -> int:
        """Remove the routes of a pattern, or all, and return their number."""
        entries = [entry for entry in self._mocks if pattern is None or entry[0].pattern == pattern]
        for entry in entries:
            await self._context.unroute(entry[1], entry[2])
            self._mocks.remove(entry)
        if not self._mocks:
            self.pause_hold.end()
            await self._forget_answers()
        return len(entries)

    async def lift(self) -> None:
        """Let all requests pass until put_back(). A second call does nothing."""
        if self._are_lifted:
            return
        self._are_lifted = True
        for _, glob, handle in self._mocks:
            await self._context.unroute(glob, handle)
        if self._mocks:
            await self._forget_answers()

    async def put_back(self) -> None:
        """End lift(). Routes of which one cannot be put back are removed."""
        if not self._are_lifted:
            return
        self._are_lifted = False
        mocks, self._mocks = self._mocks, []
        for entry in mocks:
            await self._context.route(entry[1], entry[2])
        self._mocks = mocks

    async def _forget_answers(self) -> None:
        """Have the pages forget the scripts that routes answered, which their renderers would use again.

        The browser clears that memory when the first route begins.
        """
        await self._context.route(EVERYTHING, _fall_back)
        await self._context.unroute(EVERYTHING, _fall_back)

    def __str__(self) -> str:
        return MOCKED_ROUTE if len(self) == 1 else f"{len(self)} mocked routes"

    async def _expire(self) -> None:
        # The routes stay until the session is paused.
        self.pause_hold.end()


async def _fall_back(route: Route) -> None:
    await route.fallback()


class Offline:
    """The offline state of a context. Like mocked requests it ends with the context."""

    def __init__(self, watch: ContextWatch, holds: set[str], *, spawn: Callable[..., None]) -> None:
        self._context = watch.context
        self._watch = watch
        self.on = False
        self.pause_hold = PauseHold(OFFLINE, holds, spawn=spawn, expire=self._expire)

    async def set(self, offline: bool) -> None:
        """Go offline or online. If going offline is cancelled, the context counts as offline until it is set online.

        Raises:
            playwright's Error: The context is gone.
        """
        was_on = self.on
        if offline:
            # Set first: a cancelled call may leave the context offline.
            self.on = True
            self.pause_hold.begin()
        if offline and not was_on:
            # While there is a route, the browser does not serve pages from its cache.
            await self._context.route(EVERYTHING, _fall_back)
        await self._emulate(offline)
        if was_on and not offline:
            await self._context.unroute(EVERYTHING, _fall_back)
        if not offline:
            self.on = False
            self.pause_hold.end()

    async def lift(self) -> None:
        """Go online until put_back()."""
        if self.on:
            await self._emulate(False)

    async def put_back(self) -> None:
        """End lift()."""
        if self.on:
            await self._emulate(True)

    async def _emulate(self, offline: bool) -> None:
        self._watch.is_offline = offline
        await self._context.set_offline(offline)
        async with anyio.create_task_group() as tasks:
            for page in self._context.pages:
                tasks.start_soon(self._watch.share_emulation, page)

    async def _expire(self) -> None:
        self.pause_hold.end()
