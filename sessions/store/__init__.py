"""Where sessions are stored."""

from __future__ import annotations

from .base import Loaded, Store, Write
from .sql import SQLStore, open_store

__all__ = ["Loaded", "SQLStore", "Store", "Write", "open_store"]
