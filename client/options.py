"""The options of a call and of a new session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from .transport.base import ProgressCallback


def merge_arguments(mapping: Mapping[str, Any] | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool, which are keywords, a mapping, or both.

    Raises:
        TypeError: the mapping is something else.
    """
    if not mapping:
        return keywords
    if not isinstance(mapping, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"arguments of a tool are keywords or one mapping, such as text={mapping!r}; found {mapping!r}"
        )
    return {**mapping, **keywords}


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
    """Seconds without a call after which it is paused; 0: never."""
    paused_seconds: float | None
    """Seconds without use after which a paused session expires; 0: never."""
    lifetime_seconds: float | None
    """Seconds after which it expires in any case; 0: never."""


class SessionOptions(BasicSessionOptions, total=False):
    """The options of a new session besides its name. An option that is None has the server's default."""

    services: Sequence[str] | None
    """The services that it may use; all by default."""
    logins: Sequence[str] | None
    """The logins of browsers that it gets at once, all or none."""
    agent_id: str | None
    team_id: str | None
    workflow_id: str | None


class MessageOptions(TypedDict, total=False):
    """Selects the messages of a conversation."""

    last_runs: int | None
    """Only those of so many runs, the last ones; by default also messages outside of runs."""
    roles: str | Sequence[str] | None
    """Only those of these roles. Without `assistant` and `tool` there are no calls."""
    skip_status: str | Sequence[str]
    """No runs with these statuses: `running`, `completed`, `error`, `cancelled`. `last_runs` does not count them."""
    tools: bool
    """Whether calls are messages; True by default."""


class SessionFilters(TypedDict, total=False):
    """Selects sessions. A filter that is None selects all."""

    name: str | None
    """The beginning of the name."""
    statuses: Sequence[str] | None
    """All but closed ones by default."""
    user_id: str | None
    agent_id: str | None
    team_id: str | None
    workflow_id: str | None
    metadata: Mapping[str, Any] | None
    """Keys and values that its metadata has."""
    updated_since: str | None
    """ISO 8601."""
    query: str | None
    """A text in names, ids, metadata or summaries."""


__all__ = [
    "BasicCallOptions",
    "BasicSessionOptions",
    "CallOptions",
    "MessageOptions",
    "SessionFilters",
    "SessionOptions",
]
