"""`statehold sessions import`: documents, and the sessions that other systems stored."""

from __future__ import annotations

from .command import import_foreign, import_session

__all__ = ["import_foreign", "import_session"]
