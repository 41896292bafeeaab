"""The size of a write, for the quota of its owner."""

from __future__ import annotations

from collections.abc import Sequence

from ..journal.entries import OVERHEAD
from ..records import JournalRecord
from ..state.patch import size_of
from ..store.base import Write


def entries_bytes(entries: Sequence[JournalRecord]) -> int:
    """Return the approximate bytes of journal entries in the store."""
    parts = (part for entry in entries for part in (entry.request, entry.result, entry.facts))
    return sum(map(_text_bytes, parts)) + sum(
        OVERHEAD + len(entry.error or "") for entry in entries
    )


def written_bytes(write: Write) -> int:
    """Return the approximate bytes that a write adds to the store, without its state, its snapshots and its receipts."""
    size = entries_bytes(write.journal)
    # The start of the call is counted already, with its arguments.
    size += sum(
        _text_bytes(entry.result) + _text_bytes(entry.facts) + len(entry.error or "")
        for entry in write.ended_entries
    )
    if write.summary is not None:
        size += len(write.summary.text) + sum(map(len, write.summary.topics))
    return size


def _text_bytes(value: object) -> int:
    return 0 if value is None else size_of(value)
