"""Finding sessions in the store for a command: by id, by name, or with a filter."""

from __future__ import annotations

import re
from pathlib import Path

from ....sessions.lifecycle import Status
from ....sessions.records import LOCAL, SessionFilter, SessionRecord
from ....sessions.store import SQLStore
from ..errors import CommandError
from ..exit_codes import USAGE

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
    store: SQLStore, wanted: SessionFilter, limit: int
) -> tuple[list[SessionRecord], bool]:
    """Return the first `limit` sessions of a filter, and whether there are more."""
    found: list[SessionRecord] = []
    cursor: str | None = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = wanted.model_copy(update={"limit": size, "cursor": cursor})
        records, cursor = await store.list_sessions(page)
        found += records
        if cursor is None:
            break
    return found, cursor is not None


async def find_session(store: SQLStore, wanted: str, data: Path) -> SessionRecord:
    """Return the session of an id, or of a name: an open one first, of the local user first.

    Raises:
        CommandError: there is none, or more than one.
    """
    record = await store.get(wanted)
    if record is not None:
        return record
    found, _ = await read_pages(store, SessionFilter(name_prefix=wanted), 10_000)
    found = [record for record in found if record.name == wanted]
    for choice in (
        [r for r in found if r.status is not Status.CLOSED and r.owner == LOCAL.key],
        [r for r in found if r.status is not Status.CLOSED],
        found,
    ):
        if len(choice) == 1:
            return choice[0]
        if choice:
            raise CommandError(
                "ambiguous",
                f"{wanted} is the name of {len(choice)} sessions; give the id: {', '.join(r.id for r in choice[:5])}",
                USAGE,
            )
    raise CommandError.unknown(wanted, data)


__all__ = ["find_session", "parse_owner", "read_pages", "show_owner"]
