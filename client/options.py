"""The options of a new session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class BasicSessionOptions(TypedDict, total=False):
    """The options that MCPStore's API has as well."""

    state: Mapping[str, Any] | None
    """The first value of its state."""
    state_schema: Mapping[str, Any] | None
    """The JSON Schema that its state has to fit."""
    metadata: Mapping[str, Any] | None
    user_id: str | None
    idle_seconds: float | None
    """Seconds without a call after which it is paused."""
    paused_seconds: float | None
    """Seconds after which a paused session expires."""
    lifetime_seconds: float | None
    """Seconds after which it expires in any case."""


class SessionOptions(BasicSessionOptions, total=False):
    """The options of a new session besides its name. An option that is None has the server's default."""

    services: Sequence[str] | None
    """The services that it may use; all by default."""
    agent_id: str | None
    team_id: str | None
    workflow_id: str | None


__all__ = ["BasicSessionOptions", "SessionOptions"]
