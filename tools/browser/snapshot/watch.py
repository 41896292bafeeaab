"""What has to be noted of a context while it lives, so that it can be saved."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio

from .doorstep import EmptyPages
from .world import World, origin_of

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page, Request, Response, WebSocket

BEEN: Final = 20
"""Of how many origins it is known that a page was there."""
SENT: Final = 500
"""How many of the last requests and messages are known with which a page told its site something."""
EARLY: Final = 20
POLL_SECONDS: Final = 1.0
"""A page that asks the same address again so soon after its answer, time after time, does so by itself."""
POLLS: Final = 2
"""After how many times."""
POLLED: Final = 20
"""Of how many addresses of a page it is known when it asked them last."""


class ContextWatch:
    """Follows the pages of a context from the moment it is made until the context closes."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.doorstep = EmptyPages(context)
        self.touched: set[str] = set()
        """Origins of documents that were there since somebody last took them out."""
        self.been: WeakKeyDictionary[Page, dict[str, None]] = WeakKeyDictionary()
        """Origins of documents that were on a page since its session storage of them was last read, the latest last."""
        self.media: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        """The media features that pages emulate, by the names that Playwright's emulate_media gives them."""
        self.on_cleared: list[Callable[[str], None]] = []
        """Called with each origin by whose word the browser forgets what it stored."""
        self._making: WeakKeyDictionary[Page, anyio.Lock] = WeakKeyDictionary()
        self._worlds: WeakKeyDictionary[Page, World] = WeakKeyDictionary()
        self._asked: WeakKeyDictionary[Page, tuple[str, str]] = WeakKeyDictionary()
        self._shown: WeakKeyDictionary[Page, tuple[str, str]] = WeakKeyDictionary()
        self._sent: WeakKeyDictionary[Page, deque[float]] = WeakKeyDictionary()
        self._early: deque[Request] = deque(maxlen=EARLY)
        """Requests for pages whose window is no page yet."""
        self._awaiting: WeakKeyDictionary[Page, dict[Request, _Polled]] = WeakKeyDictionary()
        self._polled: WeakKeyDictionary[Page, dict[str, _Polled]] = WeakKeyDictionary()
        for page in context.pages:
            self._follow(page)
        context.on("page", self._follow)
        context.on("request", self._requested)
        context.on("response", self._answered)
        context.on("requestfailed", self._over)

    def hidden(self, page: Page) -> bool:
        """Whether a page is none of the session's tabs."""
        return self.doorstep.hidden(page)

    async def world(self, page: Page) -> World:
        if page not in self._worlds:
            # Two would each open a DevTools session, of which one would be forgotten.
            async with self._making.setdefault(page, anyio.Lock()):
                if page not in self._worlds:
                    self._worlds[page] = await World.of(page)
        return self._worlds[page]

    def posted(self, page: Page) -> bool:
        """Whether what a page shows is the answer to a form, which its address alone does not bring back."""
        method, url = self._shown.get(page, ("GET", ""))
        return method != "GET" and url == page.url.partition("#")[0]

    def sent(self, page: Page) -> list[float]:
        """Return when a page told its own site something and stayed, in milliseconds since the epoch."""
        return list(self._sent.get(page, ()))

    def awaits(self, page: Page) -> bool:
        """Whether a page told its own site something that was not answered yet, and not only waits for news as ever."""
        return any(polled.times < POLLS for polled in self._awaiting.get(page, {}).values())

    def _follow(self, page: Page) -> None:
        if self.hidden(page):
            return
        page.on("framenavigated", self._navigated)
        page.on("websocket", partial(self._connected, page))
        later = [request for request in self._early if not self._note_asked(request)]
        self._early = deque(later, maxlen=EARLY)
        self._navigated(page.main_frame)

    def _navigated(self, frame: Frame) -> None:
        origin = origin_of(frame.url)
        asked = self._asked.get(frame.page)
        if frame.parent_frame is None and asked and asked[1] == frame.url.partition("#")[0]:
            # What was asked for and became a download is not shown.
            self._shown[frame.page] = self._asked.pop(frame.page)
            # What the document before it sent when it was left is answered to nobody.
            self._awaiting.pop(frame.page, None)
            self._polled.pop(frame.page, None)
        if origin is not None and (
            frame.parent_frame is None or _related(frame.url, frame.page.url)
        ):
            self._note_there(origin, frame.page)

    def _note_there(self, origin: str, page: Page) -> None:
        self.touched.add(origin)
        self.note_been(origin, page)

    def note_been(self, origin: str, page: Page) -> None:
        """Have the session storage that a page keeps for an origin read."""
        been = self.been.setdefault(page, {})
        been.pop(origin, None)
        been[origin] = None
        for oldest in list(been)[:-BEEN]:
            del been[oldest]

    def _over(self, request: Request) -> None:
        for awaited in self._awaiting.values():
            if (polled := awaited.pop(request, None)) is not None:
                polled.answered = time.monotonic()

    def _answered(self, response: Response) -> Awaitable[None] | None:
        # Of the answers of a page nearly all are none of a page: for those no task is begun.
        request, origin = response.request, origin_of(response.url)
        self._over(request)
        if origin is None or not request.is_navigation_request() or not _heeded(origin):
            return None
        frame = _frame_of(request)
        if frame is not None and frame.parent_frame is not None:
            return None
        return self._note_cleared(origin, response)

    async def _note_cleared(self, origin: str, response: Response) -> None:
        # The page may be gone by now.
        with suppress(Exception):
            # The driver has it; among the headers that come with the event the browser leaves it out.
            told = await response.header_value("clear-site-data") or ""
            if '"storage"' in told or '"*"' in told:
                # A logout that leads elsewhere at once never shows a document of its own.
                self.touched.add(origin)
                for tell in self.on_cleared:
                    tell(origin)

    def framed(self, page: Page) -> set[str]:
        """Return the origins of frames that may share the storage of their origins, but for the page's own."""
        frames = (frame for frame in page.frames if frame.parent_frame is not None)
        origins = {origin_of(frame.url) for frame in frames if _related(frame.url, page.url)}
        return {origin for origin in origins if origin is not None} - {origin_of(page.url)}

    def look_again(self) -> None:
        """Note what frames may store from now on, though it was just read."""
        for page in self.context.pages:
            if not self.hidden(page):
                for origin in self.framed(page):
                    self._note_there(origin, page)

    def _requested(self, request: Request) -> None:
        # A form may be sent into a frame, or get an answer that leaves the page where it is.
        self._note_sent(request)
        if request.is_navigation_request() and not self._note_asked(request):
            self._early.append(request)

    def _note_asked(self, request: Request) -> bool:
        """Note for which page a page was asked. Returns whether that is known."""
        frame = _frame_of(request)
        if frame is not None and frame.parent_frame is None:
            self._asked[frame.page] = (request.method, request.url.partition("#")[0])
        return frame is not None

    def _connected(self, page: Page, socket: WebSocket) -> None:
        # There are pages that tell their site by one all that is done on them.
        socket.on("framesent", lambda _: self._note_told(socket.url, page))

    def _note_sent(self, request: Request) -> None:
        # By a beacon pages tell of every click that there was one, and not what it did.
        if request.method in ("GET", "HEAD", "OPTIONS") or request.resource_type == "ping":
            return
        # What a page tells others, such as who counts its visitors, does nothing on its own site.
        if (frame := _frame_of(request)) is not None:
            self._note_told(request.url, frame.page)
            if _related(request.url, frame.page.url):
                awaiting = self._awaiting.setdefault(frame.page, {})
                awaiting[request] = self._note_polled(request.url, frame.page)

    def _note_polled(self, url: str, page: Page) -> _Polled:
        known, address = self._polled.setdefault(page, {}), url.partition("?")[0]
        before = known.pop(address, None)
        soon = before is not None and time.monotonic() - before.answered < POLL_SECONDS
        known[address] = polled = _Polled(before.times + 1 if before and soon else 0)
        for oldest in list(known)[:-POLLED]:
            del known[oldest]
        return polled

    def _note_told(self, url: str, page: Page) -> None:
        if _related(url, page.url):
            self._sent.setdefault(page, deque(maxlen=SENT)).append(time.time() * 1000)


@dataclass(slots=True)
class _Polled:
    """A request with which a page told its site something."""

    times: int
    """How many times before the page asked the same as soon as it had the answer."""
    answered: float = float("-inf")


def _frame_of(request: Request) -> Frame | None:
    """Return what a request is for, None for the first of a window, which comes before its frame, and for a worker's."""
    with suppress(Exception):
        return request.frame
    return None


def _heeded(origin: str) -> bool:
    """Whether the browser does what an origin says of its storage: nobody else could have said it."""
    host = urlsplit(origin).hostname or ""
    if origin.startswith("https:") or f".{host}".endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def _related(url: str, top: str) -> bool:
    """Whether a frame may share the storage of its origin with pages of that origin. When in doubt: yes."""
    one, other = (urlsplit(u).hostname or "" for u in (url, top))
    return one.split(".")[-2:] == other.split(".")[-2:]


__all__ = ["ContextWatch"]
