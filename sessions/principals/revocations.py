"""The revocation of a principal: all of its access ends, until it is restored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationRecord:
    """A row of the store. Revoking a principal again replaces it."""

    owner: str
    """The key of the principal."""
    revoked_at: float
    revoked_by: str
    """The user of the machine who revoked it, in words."""
    reason: str | None = None
    until: float | None = None
    """When it ends by itself; None: with its restoration."""
    keeps_sessions: bool = False
    """Whether the sessions of the principal are paused, not closed."""

    def is_in_force(self, now: float) -> bool:
        return self.until is None or now < self.until
