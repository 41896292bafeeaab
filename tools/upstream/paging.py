"""The pages of a list. A list that does not end keeps the items that it brought."""

from __future__ import annotations

import logging
from typing import Final, cast

import anyio

from ...sessions.json_codec import JSON, dumps

logger = logging.getLogger("statehold.upstream")

MAX_PAGES: Final = 1000
"""Most pages of a list; a longer list counts as endless."""

LIST_SECONDS: Final = 10.0
"""Seconds after which no further page of a list is asked for."""


class Paging:
    """Reads the pages of one list of an upstream until it ends: `while paging.is_open`, ask with `params`, then add().

    A list ends without a cursor. It is cut short, with a warning in the log, when a cursor repeats, which some servers
    ignore, when a page has only items of earlier pages, and after MAX_PAGES or LIST_SECONDS.
    """

    def __init__(self, service: str, method: str) -> None:
        self._list = f"{method} of {service}"
        self._cursor: str | None = None
        self._seen_cursors: set[str] = set()
        self._seen_items: set[str] = set()
        self._pages = 0
        self._deadline = anyio.current_time() + LIST_SECONDS
        self.is_open = True

    @property
    def params(self) -> JSON:
        """The parameters of the request for the next page."""
        return {} if self._cursor is None else {"cursor": self._cursor}

    @property
    def has_begun(self) -> bool:
        return self._pages > 0

    def add(self, items: list[object], next_cursor: object) -> list[JSON]:
        """Take a page, and return its items that no earlier page had; those that are not objects are skipped."""
        self._pages += 1
        new_items: list[JSON] = []
        for item in items:
            if isinstance(item, dict):
                fields = cast("JSON", item)
                text = dumps(fields)
                if text not in self._seen_items:
                    self._seen_items.add(text)
                    new_items.append(fields)
        if not isinstance(next_cursor, str):
            self.is_open = False
        elif next_cursor in self._seen_cursors:
            self.cut("its cursor repeats")
        elif items and not new_items:
            self.cut("its pages repeat")
        elif self._pages == MAX_PAGES:
            self.cut(f"it has more than {MAX_PAGES} pages")
        elif anyio.current_time() > self._deadline:
            self.cut(f"it took more than {LIST_SECONDS:g} seconds")
        else:
            self._seen_cursors.add(next_cursor)
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


__all__ = ["Paging"]
