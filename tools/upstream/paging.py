"""The pages of a list. A list that does not end keeps the items that it brought."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

import anyio

from ...sessions.json_codec import JSON, dumps

logger = logging.getLogger("statehold.upstream")

MAX_PAGES: Final = 1000
"""Most pages of a list; a longer list counts as endless."""

LIST_SECONDS: Final = 10.0
"""Seconds after which no further page of a list is asked for."""


class Paging:
    """Reads the pages of one list of an upstream until it ends: `while paging.is_open`, ask in next_page() with `params`.

    The page is then given to add(), unless the list was cut meanwhile.

    A list ends without a cursor. It is cut short, with a warning in the log, when a cursor repeats, which some servers
    ignore, when a page has only items of earlier pages, when a page does not come, and after MAX_PAGES or LIST_SECONDS.
    """

    def __init__(self, service: str, method: str) -> None:
        self._list = f"{method} of {service}"
        self._cursor: object = None
        self._seen_cursors: set[str] = set()
        self._seen_items: set[str] = set()
        self._pages = 0
        self._deadline = anyio.current_time() + LIST_SECONDS
        self.is_open = True

    @property
    def params(self) -> JSON:
        """The parameters of the request for the next page."""
        return {} if self._cursor is None else {"cursor": self._cursor}

    @contextmanager
    def next_page(self) -> Generator[None]:
        """Limit the time of the request for the next page, unless it is the first; a list without it ends there.

        A caller that has less time keeps half of it for its further work.
        """
        now, seconds = anyio.current_time(), math.inf
        if self._pages:
            seconds = min(LIST_SECONDS, (anyio.current_effective_deadline() - now) / 2)
        with anyio.CancelScope(deadline=now + seconds) as scope:
            yield
        if scope.cancelled_caught:
            self.cut(f"its next page did not come within {seconds:.2g} seconds")

    @property
    def has_begun(self) -> bool:
        return self._pages > 0

    def add(self, items: list[object], next_cursor: object) -> list[JSON]:
        """Take a page, and return its items that no earlier page had; those that are not objects are skipped.

        A cursor goes back as it came: some servers have numbers or objects for it.
        """
        self._pages += 1
        new_items: list[JSON] = []
        for item in items:
            if isinstance(item, dict):
                fields = cast("JSON", item)
                text = dumps(fields)
                if text not in self._seen_items:
                    self._seen_items.add(text)
                    new_items.append(fields)
        if next_cursor is None or isinstance(next_cursor, bool):
            self.is_open = False
        elif (key := dumps(next_cursor)) in self._seen_cursors:
            self.cut("its cursor repeats")
        elif items and not new_items:
            self.cut("its pages repeat")
        elif self._pages == MAX_PAGES:
            self.cut(f"it has more than {MAX_PAGES} pages")
        elif anyio.current_time() > self._deadline:
            self.cut(f"it took more than {LIST_SECONDS:g} seconds")
        else:
            self._seen_cursors.add(key)
            self._cursor = next_cursor
        return new_items

    def cut(self, reason: str) -> None:
        """End the list here, and log it."""
        self.is_open = False
        logger.warning(
            "%s is cut short after %d pages with %d items: %s",
            self._list,
            self._pages,
            len(self._seen_items),
            reason,
        )
