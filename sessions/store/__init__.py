"""The store of sessions."""

from __future__ import annotations

from .base import JournalCounts, JournalLimits, Loaded, Store, Write
from .sql import SQLStore, open_store

__all__ = ["JournalLimits", "Loaded", "SQLStore", "Store", "JournalCounts", "Write", "open_store"]
