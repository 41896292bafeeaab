"""The requests of a page, and the time for which an action waits for each of them.

An action waits for the requests that it caused. Pages also send requests of their own, some of which are never answered,
and an action cannot tell them apart for sure. So each endpoint, a method with an address without its query, has a time:

- A request that was open before the action is not waited for.
- An endpoint that the page also asks between actions is the page's own, and so is one that it asks again after MAX_REPEATS
  answers during an action. Requests that were sent at once are all waited for.
- The data that a page asks for while it loads are waited for a short time.
- An endpoint that an action waited for in vain is not waited for again, also on the next pages, until it answers in time.
  Each kind of request counts for itself: the address of a stream may also be that of a document.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ....sessions.owned_map import BoundedMap

if TYPE_CHECKING:
    from playwright.async_api import Request

MAX_KEPT: Final = 1000
"""The number of requests of an action that are kept, and of endpoints."""
MAX_REPEATS: Final = 3
"""The ended requests to an endpoint during one action after which further ones are the page's own."""
IDLE_REPEATS: Final = 2
"""The same between actions."""
OWN_SECONDS: Final = 0.5
"""Seconds for which an action waits for an endpoint that is the page's own: the action may have used it, too."""
DATA_SECONDS: Final = 1.0
"""Seconds for which a page that loads waits for its data."""
BODY_SECONDS: Final = 0.5
"""Seconds that the body of a fetch may take after its headers; it may never end, and the page need not read it."""
SLOW_SECONDS: Final = 2.0
"""An endpoint is not endless if it answers within so many seconds after its request, or after an action waited in vain."""

_AWAITED_TYPES: Final = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Kinds of requests that can change the text of a page. Pictures, media and streams do not."""
DATA_TYPES: Final = frozenset({"xhr", "fetch"})
"""Kinds of requests whose answer a script handles."""

Endpoint: TypeAlias = tuple[str, str]


class _Endless(NamedTuple):
    was_answered: bool
    noted_at: float


class Traffic:
    """The requests of one page. It lives as long as the page; its methods never wait."""

    def __init__(self) -> None:
        self.pending: dict[Request, float] = {}
        """The requests that have not ended, with the time of their start."""
        self.recent: deque[Request] = deque(maxlen=MAX_KEPT)
        """The last MAX_KEPT requests since the start of the last action."""
        self._answered: dict[Request, float] = {}
        """By pending request, the time of its response, whose body may still be arriving."""
        self._first: dict[Endpoint, float] = {}
        """The time of the first request to each endpoint since the start of the last action."""
        self._ended: Counter[Endpoint] = Counter()
        self._repeated_at: dict[Endpoint, float] = {}
        """By endpoint, the time at which MAX_REPEATS requests had ended since the start of the last action."""
        self._idle: Counter[Endpoint] = Counter()
        self._own: set[Endpoint] = set()
        self._endless = BoundedMap[tuple[Endpoint, str], _Endless](MAX_KEPT)
        """By endpoint and kind of request."""
        self._reported: set[Endpoint] = set()
        self._is_acting = False
        self.expects_download = False
        """Whether the last action began a download without a request of the page."""

    def begin_action(self) -> Sequence[Request]:
        """Begin a new list of requests and return it; the requests that follow are added to it."""
        self.recent = deque(maxlen=MAX_KEPT)
        self._first.clear()
        self._ended.clear()
        self._repeated_at.clear()
        self._own = {endpoint for endpoint, count in self._idle.items() if count >= IDLE_REPEATS}
        self._own.update(map(_endpoint, self.pending))
        self._is_acting, self.expects_download = True, False
        return self.recent

    def end_action(self) -> None:
        """Record that requests from now on are not effects of the action."""
        self._is_acting = False

    def record_request(self, request: Request) -> None:
        now = time.monotonic()
        self.pending[request] = now
        self.recent.append(request)
        if len(self._first) < MAX_KEPT:
            self._first.setdefault(_endpoint(request), now)
        if not self._is_acting and len(self._idle) < MAX_KEPT:
            self._idle[_endpoint(request)] += 1

    def record_answer(self, request: Request) -> None:
        if request in self.pending:
            self._answered[request] = time.monotonic()

    def record_end(self, request: Request) -> None:
        now = time.monotonic()
        started_at = self.pending.pop(request, -inf)
        self._answered.pop(request, None)
        if request.failure is not None:
            # A new page ends the requests of the one before.
            return
        endpoint = _endpoint(request)
        if len(self._ended) < MAX_KEPT:
            self._ended[endpoint] += 1
        if self._ended[endpoint] >= MAX_REPEATS:
            self._repeated_at.setdefault(endpoint, now)
        endless = self._endless.get((endpoint, request.resource_type))
        if endless is not None and now - max(endless.noted_at, started_at) < SLOW_SECONDS:
            del self._endless[endpoint, request.resource_type]

    def begin_document(self, requests: Collection[Request]) -> None:
        """Record that the page has a new document, of which these are the requests so far."""
        self.pending = {r: start for r, start in self.pending.items() if r in requests}
        self._answered = {r: at for r, at in self._answered.items() if r in self.pending}
        self._idle.clear()
        self._own.clear()
        self._reported.clear()

    def seconds_to_wait(self, requests: Sequence[Request], *, loads: bool) -> float:
        """Return the seconds for which an action waits for the pending ones of its requests; 0 if it does not wait.

        `loads`: the action loads a page.
        """
        pending = (request for request in requests if request in self.pending)
        return max((self._time_left(request, loads) for request in pending), default=0.0)

    def is_effect(self, request: Request, *, loads: bool) -> bool:
        """Return whether a request, which may have ended, counts as an effect of the action that waits now."""
        return self._time_left(request, loads) > 0

    def _time_left(self, request: Request, loads: bool) -> float:
        if request.resource_type not in _AWAITED_TYPES:
            return 0.0
        endpoint, now = _endpoint(request), time.monotonic()
        endless = self._endless.get((endpoint, request.resource_type))
        answered_at = self._answered.get(request)
        if endless is not None and (answered_at is not None or not endless.was_answered):
            return 0.0
        if request.resource_type not in DATA_TYPES:
            return inf
        if self.pending.get(request, inf) > self._repeated_at.get(endpoint, inf):
            return 0.0
        is_own = endpoint in self._own
        if answered_at is not None and request.resource_type == "fetch" and not is_own:
            return max(0.0, answered_at + BODY_SECONDS - now)
        if not (is_own or loads):
            return inf
        first = self._first.get(endpoint, now)
        return max(0.0, first + (OWN_SECONDS if is_own else DATA_SECONDS) - now)

    @property
    def paint_hint(self) -> str:
        """The style sheets that a page still waits for, in brackets; "" if there are none. Until then it is not painted."""
        addresses = [r.url[:500] for r in self.pending if r.resource_type == "stylesheet"]
        if not addresses:
            return ""
        more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
        return f" (the page waits for the style sheet {addresses[0]}{more} and may not be painted before)"

    def take_open(self, requests: Sequence[Request]) -> list[Request]:
        """Return those requests that an action waited for in vain, each endpoint once in a document."""
        now = time.monotonic()
        open_requests = [
            request
            for request in requests
            if request in self.pending
            and request.resource_type in _AWAITED_TYPES
            and _endpoint(request) not in self._reported
            and not self._is_in_time(request, now)
        ]
        for request in open_requests:
            endpoint = _endpoint(request)
            self._reported.add(endpoint)
            key = endpoint, request.resource_type
            self._endless[key] = _Endless(request in self._answered, now)
        return open_requests

    def _is_in_time(self, request: Request, now: float) -> bool:
        """Return whether a request is as young as others to its endpoint, which were answered."""
        return self._ended[_endpoint(request)] > 0 and now - self.pending[request] < OWN_SECONDS


def _endpoint(request: Request) -> Endpoint:
    return request.method, request.url.partition("?")[0]
