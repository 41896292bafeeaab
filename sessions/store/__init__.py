"""The store of sessions: its interface in base.py, and its implementation on SQL databases.

Import the implementation from `sql`. This package itself imports no database library.
"""

from __future__ import annotations

from ..records import JournalCounts
from .base import ClaimedSession, JournalLimits, Store, Write

__all__ = ["ClaimedSession", "JournalCounts", "JournalLimits", "Store", "Write"]
