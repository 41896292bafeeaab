"""Where sessions are stored."""

from __future__ import annotations

from .base import JournalLimits, Loaded, Store, Tally, Write
from .sql import SQLStore, open_store

__all__ = ["JournalLimits", "Loaded", "SQLStore", "Store", "Tally", "Write", "open_store"]
