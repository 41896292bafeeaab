"""The numbers and choices that the sessions of one process live by. All times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .journal.redaction import KEYS
from .records import Timeouts


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """How much the journal of one session may take. Past it the oldest entries become one that counts them."""

    entries: int = 100_000
    bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults and bounds for every session of a process. See design section 4."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    longest: Timeouts = field(default_factory=lambda: Timeouts(idle=0, paused=0, lifetime=0))
    """What a session may ask for at most; 0 means no bound."""
    namespace: str = ""
    """Where a name is looked for when the caller says no namespace."""
    on_idle: Literal["pause", "close"] = "pause"
    auto_resume: bool = True
    """Whether a call resumes a paused session, instead of getting session_paused."""
    retention: float = 604_800.0
    """How long a closed session is kept; 0 keeps it for ever."""
    close_grace: float = 5.0
    recovery_backoff: tuple[float, ...] = (0.2, 1.0, 5.0)
    """Waits before each attempt; as many attempts as there are waits. Empty: recover only on session_restart."""
    live_sessions: int = 100
    live_per_principal: int = 0
    """A fixed maximum of one principal; 0 means none."""
    shared: bool = False
    """Whether there may be several principals, so that each leaves something of every total to others."""
    sessions_per_principal: int = 1000
    stored_bytes_per_principal: int = 4 << 30
    """What the sessions of one principal may take in the store; 0 means no limit."""
    free_disk_bytes: int = 100 << 20
    """What stays free on the disk of the data folder."""
    calls_per_session: int = 1000
    queue: int = 1000
    queue_per_principal: int = 0
    """A fixed maximum of one principal; 0 means none."""
    queue_seconds: float = 30.0
    journal_calls: bool = True
    """Whether calls without an operation id are recorded."""
    journal_sync: bool = False
    journal_bytes: int = 4096
    """How much of a request and of a result an entry keeps."""
    redact: frozenset[str] = KEYS
    """Argument names, in lower case, whose values never reach the journal."""
    redact_patterns: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts of the configuration that never reach the journal."""
    """Regular expressions of what never reaches it wherever it stands, besides what is known to be secret."""
    receipts: int = 10_000
    """Operation ids that a session may use."""
    receipt_bytes: int = 8 << 20
    """How large a result may be to be kept for a repeat of its operation id."""
    receipts_bytes: int = 256 << 20
    """How much the results kept for one session may take together."""


__all__ = ["JournalLimits", "Policy"]
