"""Lookup of sessions in the store for a command: by id, by name, or with a filter."""

from __future__ import annotations

import re
from pathlib import Path

from ....sessions.lifecycle import Status
from ....sessions.records import LOCAL, SessionFilter, SessionRecord
from ....sessions.store.sql import SQLStore
from ...exit_codes import USAGE
from ..errors import CommandError

_PAGE = 500


def show_owner(record: SessionRecord) -> str:
    """Return an owner for display: the subject alone, unless it has an issuer."""
    return record.owner.removeprefix(":")


def parse_owner(text: str | None) -> str | None:
    """Return the key of an owner that is given as show_owner() returns it."""
    if text is None or re.match(r":|\d+\.\d+:", text):
        return text
    return f":{text}"


async def read_pages(
    store: SQLStore, session_filter: SessionFilter, limit: int
) -> tuple[list[SessionRecord], bool]:
    """Return the first `limit` sessions of a filter, and whether there are more."""
    records: list[SessionRecord] = []
    cursor: str | None = None
    while len(records) < limit:
        size = min(_PAGE, limit - len(records))
        page = session_filter.model_copy(update={"limit": size, "cursor": cursor})
        page_records, cursor = await store.list_sessions(page)
        records += page_records
        if cursor is None:
            break
    return records, cursor is not None


async def find_session(store: SQLStore, ref: str, data: Path) -> SessionRecord:
    """Return the session with an id or a name. Of several with the name: the open one, of the local user if possible.

    Raises:
        CommandError: there is no such session, or the name is ambiguous.
    """
    record = await store.get(ref)
    if record is not None:
        return record
    matches, _ = await read_pages(store, SessionFilter(name_prefix=ref), 10_000)
    matches = [record for record in matches if record.name == ref]
    for choice in (
        [r for r in matches if r.status is not Status.CLOSED and r.owner == LOCAL.key],
        [r for r in matches if r.status is not Status.CLOSED],
        matches,
    ):
        if len(choice) == 1:
            return choice[0]
        if choice:
            raise CommandError(
                "ambiguous",
                f"{ref} is the name of {len(choice)} sessions; give the id: {', '.join(r.id for r in choice[:5])}",
                USAGE,
            )
    raise CommandError.session_unknown(ref, data)


__all__ = ["find_session", "parse_owner", "read_pages", "show_owner"]
