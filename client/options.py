"""The options of a call and of a new session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from .transport.base import ProgressCallback


class BasicCallOptions(TypedDict, total=False):
    """The options of a call that the async and the blocking client share."""

    read_timeout_seconds: float | None
    """Seconds after which the call is cancelled; without a limit by default."""
    operation_id: str | None
    """The server runs at most one call of an id in a session, and returns its result to all others, of any caller."""
    run_id: str | None
    """Groups calls in the history."""
    check: bool
    """Whether an error of the tool is raised (the default) or returned."""


class CallOptions(BasicCallOptions, total=False):
    """The options of a call."""

    progress_callback: ProgressCallback | None
    """Receives the progress of the call."""


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


__all__ = ["BasicCallOptions", "BasicSessionOptions", "CallOptions", "SessionOptions"]
