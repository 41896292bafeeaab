"""Questions about the bindings of a session: which connections are missing, and which an earlier process left."""

from __future__ import annotations

from typing import Final

from ..records import BindingStatus
from ..store.base import RESTARTED
from .binding import Binding
from .session import LiveSession

MAX_REASON_LENGTH: Final = 300
"""Characters of the `reason` of a session."""


def missing_bindings(session: LiveSession) -> list[Binding]:
    """Return the bindings whose connection was lost or could not be opened."""
    return [binding for binding in session.bindings.values() if binding.record.status.missing]


def lost_reason(session: LiveSession) -> str | None:
    """Return the `reason` of a session whose lost connections could not be opened again; None when it has lost none."""
    for binding in missing_bindings(session):
        error = binding.record.last_error
        if error != RESTARTED:
            reason = f"connection_lost: {binding.service.name}: {error or 'it was lost'}"
            return reason[:MAX_REASON_LENGTH]
    return None


def is_orphan(binding: Binding) -> bool:
    """Whether its connection outlived the process that opened it, and no process has resumed it since."""
    return binding.record.status is BindingStatus.KEPT and binding.live is None


def is_resumable(binding: Binding) -> bool:
    """Whether the service of a connection that outlived its process may know it still."""
    record = binding.record
    return record.resume_token is not None and record.config_hash == binding.service.config_hash


def has_orphans(session: LiveSession) -> bool:
    """Whether an earlier process left connections of a session that this one has not resumed."""
    return any(map(is_orphan, session.bindings.values()))
