"""The store of sessions."""

from __future__ import annotations

from .base import ClaimedSession, JournalCounts, JournalLimits, Store, Write
from .sql import SQLStore, open_store

__all__ = [
    "JournalLimits",
    "ClaimedSession",
    "SQLStore",
    "Store",
    "JournalCounts",
    "Write",
    "open_store",
]
