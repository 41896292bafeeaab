"""`statehold sessions import --from SYSTEM`: the sessions that other systems stored."""

from __future__ import annotations

from .command import import_foreign

__all__ = ["import_foreign"]
