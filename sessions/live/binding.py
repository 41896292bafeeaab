"""One service as one session uses it: its record, its live connection, and what is still to be saved and told of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import anyio

from ..records import BindingRecord, BindingStatus, SnapshotRecord
from ..services import Service
from ..store.base import RESTARTED
from .connection import LiveConnection


class Binding:
    """One service as one session uses it."""

    __slots__ = (
        "checkpoint_at",
        "checkpointed_at",
        "last_live",
        "live",
        "losses",
        "notice",
        "opening",
        "record",
        "recovery",
        "save_error",
        "save_failures",
        "saving",
        "service",
        "snapshot_outdated",
        "snapshot_seq",
        "unreported_losses",
        "unsaved_at",
        "unstored_snapshot",
    )

    def __init__(self, record: BindingRecord, service: Service) -> None:
        self.record = record
        self.service = service
        self.live: LiveConnection | None = None
        self.last_live: LiveConnection | None = None
        """The connection opened last, live or not; its stderr can still be read."""
        self.opening = 0
        """Number of tasks about to open a connection; they may hold a place of the budget already."""
        self.snapshot_seq = 0
        """Number of the newest snapshot. The next number is higher, even if the clock went back."""
        self.recovery: anyio.Event | None = None
        """Set when the automatic recovery of its lost connection ends; None before a loss, and once a connection is open.
        Without automatic recovery it is never set."""
        self.losses = 0
        """Connections lost in a row without an answered call."""
        self.notice: str | None = None
        """Notice of a replaced connection, for the next result."""
        self.snapshot_outdated = False
        """Whether calls were made after the snapshot that its connection was opened from."""
        self.unreported_losses = ""
        """Losses not yet reported to a caller, in words."""
        self.checkpoint_at: float | None = None
        """Time of the next checkpoint; None when none is due, or while it is being taken."""
        self.checkpointed_at = float("-inf")
        """Time when the last checkpoint was taken, or failed."""
        self.save_error: str | None = None
        """Why the last attempt to save the current connection failed, None when it did not."""
        self.save_failures = 0
        """Failed checkpoints of the current connection since the last successful one."""
        self.saving = anyio.Lock()
        self.unsaved_at = float("-inf")
        """When the last call ended that left something unsaved."""
        self.unstored_snapshot: SnapshotRecord | None = None
        """The last snapshot, if the store refused it."""

    @property
    def usable(self) -> bool:
        """Whether a call may be sent over its connection now."""
        return self.live is not None and self.live.usable

    def end_recovery(self) -> None:
        """Let those that wait for its recovery go on."""
        if self.recovery is not None:
            self.recovery.set()
            self.recovery = None

    def update(self, **values: Any) -> BindingRecord:
        self.record = self.record.model_copy(update=values)
        return self.record


MAX_REASON_LENGTH: Final = 300
"""Characters of the `reason` of a session."""


def lost_reason(bindings: Iterable[Binding]) -> str | None:
    """Return the `reason` of a session whose lost connections could not be opened again; None when it has lost none."""
    for binding in bindings:
        error = binding.record.last_error
        if binding.record.status.missing and error != RESTARTED:
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


def has_orphans(bindings: Iterable[Binding]) -> bool:
    """Whether an earlier process left connections that this one has not resumed."""
    return any(map(is_orphan, bindings))
