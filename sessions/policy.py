"""Settings for the sessions of one process. All times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .journal.redaction import KEYS
from .principals.rules import PolicyRule
from .records import Timeouts


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """Size limits of one session's journal. Beyond them, one entry with counts replaces the oldest entries."""

    entries: int = 100_000
    bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class SummaryTriggers:
    """The events after which a model sums up a session, if there is a model."""

    every_messages: int = 0
    """After so many messages of a session; 0: never."""
    on_pause: bool = False
    on_close: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults and bounds for every session of a process."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    paused_named: float = 0.0
    """The default of `timeouts.paused` for sessions with a name."""
    longest: Timeouts = field(default_factory=lambda: Timeouts(idle=0, paused=0, lifetime=0))
    """Upper bounds of the timeouts a session may ask for; 0 means no bound."""
    namespace: str = ""
    """Namespace of a name when the caller gives none."""
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
    """Whether there may be several principals, so that each leaves a part of every total to the others."""
    sessions_per_principal: int = 10_000
    stored_bytes_per_principal: int = 4 << 30
    """Bytes that the sessions of one principal may take in the store; 0 means no limit."""
    principal_policies: tuple[PolicyRule, ...] = ()
    """The policies of the configuration, with limits in place of these defaults; see principals/limits.py."""
    state_bytes: int = 1 << 20
    """Most bytes of the state of a session as JSON text."""
    free_disk_bytes: int = 100 << 20
    """Bytes that stay free on the disk of the data folder."""
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
    journal_facts: bool = True
    """Whether the entries of calls have facts of their steps."""
    redact: frozenset[str] = KEYS
    """Argument names, in lower case, whose values never reach the journal."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions of texts that never reach the journal, in addition to known secrets."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts of the configuration that never reach the journal."""
    receipts: int = 10_000
    """Operation ids that a session may use."""
    receipt_bytes: int = 8 << 20
    """Size limit in bytes of a result that is kept for a repeat of its operation id."""
    receipts_bytes: int = 256 << 20
    """Size limit in bytes of all results kept for one session."""
    summaries: SummaryTriggers = field(default_factory=SummaryTriggers)

    def timeouts_of_name(self, name: str | None) -> Timeouts:
        """Return the default timeouts of a session with a name, or without one."""
        if name is None:
            return self.timeouts
        return self.timeouts.model_copy(update={"paused": self.paused_named})

    def longest_of_name(self, name: str | None) -> Timeouts:
        """Return the longest timeouts that a session with a name, or without one, may ask for; 0 means no bound."""
        if name is None or self.paused_named:
            return self.longest
        return self.longest.model_copy(update={"paused": 0.0})

    def renamed(self, timeouts: Timeouts, *, before: str | None, after: str | None) -> Timeouts:
        """Return the timeouts of a session that changes its name: a default follows the name, another value stays."""
        if timeouts.paused != self.timeouts_of_name(before).paused:
            return timeouts
        return timeouts.model_copy(update={"paused": self.timeouts_of_name(after).paused})
