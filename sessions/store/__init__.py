"""The store of sessions. Import it from `sql`; this package itself imports no database library."""

from __future__ import annotations

from ..policy import JournalLimits
from .base import ClaimedSession, Write

__all__ = ["ClaimedSession", "JournalLimits", "Write"]
