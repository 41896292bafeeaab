"""The results of Statehold's own tools that the client returns. The server describes its answers with the same classes.

The client imports them, so they need the standard library only. It may be older or newer than the server: it ignores members
that it does not know, and members that may be null may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The state of a session's use of one service."""

    service: str
    status: str
    connected: bool
    generation: int
    last_error: str | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class ControlInfo:
    """The driver of a session: `agent`, `requested` (the agent asks for a person) or `human`. Times are ISO 8601 in UTC."""

    driver: str
    since: str
    epoch: int
    holder: str | None = None
    reason: str | None = None
    """Why the agent asks for a person."""
    expires_at: str | None = None
    end: str | None = None
    """How the last control of a person ended: `done`, `could_not`, `expired` or `revoked`."""
    reply: str | None = None
    agent_left: bool = False
    """Whether the call that asks for a person was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """The full description of a session. Times are ISO 8601 in UTC.

    In a list, fields that are only known of an open session keep their defaults.
    """

    session_id: str
    name: str | None = None
    namespace: str
    status: str
    reason: str | None = None
    created_at: str
    used_at: str
    expires_at: str | None = None
    metadata: dict[str, Any]
    user_id: str | None = None
    agent_id: str | None = None
    team_id: str | None = None
    workflow_id: str | None = None
    closed_at: str | None = None
    idle_seconds: float = 0.0
    paused_seconds: float = 0.0
    lifetime_seconds: float = 0.0
    parent: str | None = None
    control: ControlInfo | None = None
    """None while the agent drives and no person ever did."""
    in_flight: int = 0
    generation: int = 0
    state_version: int = 0
    services: list[ServiceInfo] = field(default_factory=list[ServiceInfo])
    notice: str | None = None
    """The notice of what was restored or lost, if this answers a call of the session: given once, as with any call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareInfo:
    """The share of a session with a user or with a group."""

    subject: str | None = None
    group: str | None = None
    issuer: str
    rights: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class StateValue:
    """The value and version of a state when it was read."""

    found: bool
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of a history."""

    seq: int
    kind: str
    at: str
    service: str | None = None
    tool: str | None = None
    status: str | None = None
    role: str | None = None
    run_id: str | None = None
    operation_id: str | None = None
    arguments: Any = None
    result: Any = None
    error: str | None = None
    duration_ms: float | None = None
    generation: int | None = None
    content: str | None = None
    ended_at: str | None = None
    """When a run ended; None while it runs."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the entry, such as the statuses of a transition."""


@dataclass(frozen=True, slots=True)
class History:
    """A page of a history, the newest last. `next_cursor` leads to older entries; None: there are none."""

    entries: list[HistoryEntry]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ForkedSession:
    """A session that a fork made."""

    session_id: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class CopiedService:
    """Whether the children of a fork start from a snapshot of a service."""

    service: str
    copied: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ForkResult:
    """The outcome of a fork."""

    children: list[ForkedSession]
    services: list[CopiedService] = field(default_factory=list[CopiedService])


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path where a merge had to choose between two values."""

    path: str
    source: str
    taken: bool


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The outcome of a merge."""

    version: int
    conflicts: list[Conflict]
    conflict_count: int


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The status of a configured service."""

    service: str
    status: str
    problem: str | None = None
    tools: int | None = None
    scope: str = ""
    pause: str = ""
    renamed: str | None = field(default=None, repr=False)
    """A line about its tools that have other names here than on the service."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of the server: all callers' sessions by status, and the live objects of its process."""

    started_at: str
    sessions: dict[str, int]
    here: dict[str, int]
    journal_dropped: int
    stored: dict[str, Any] = field(default_factory=dict[str, Any])
    """The storage of the caller's sessions: `bytes`, `limit` (0: none), and `measured_at`, absent before the measurement."""
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    """The limits of the caller: `limit` and `source` of each, by its name. A limit that is 0 or null is none."""


def parse_result(kind: type[T], content: Mapping[str, Any]) -> T:
    """Return the result that a JSON object describes. Members that `kind` lacks are ignored, or kept in its `more`.

    Raises:
        TypeError: a member that `kind` requires is missing.
    """
    kinds = _result_kinds(kind)
    values = {
        name: _map_results(kinds[name], parse_result, value)
        for name, value in content.items()
        if name in kinds
    }
    if "more" in kinds:
        values["more"] = {name: value for name, value in content.items() if name not in kinds}
    return kind(**values)


def without_nulls(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without the nulls that `kind` allows; values that a caller stored are not changed."""
    kinds, nullable = _result_kinds(kind), _nullable_names(kind)
    return {
        name: _map_results(kinds.get(name), without_nulls, value)
        for name, value in content.items()
        if value is not None or name not in nullable
    }


def _map_results(
    kind: type[Any] | None, function: Callable[[type[Any], JSON], object], value: object
) -> object:
    """Return a member with the function applied to it, or to its items, if these are results of this kind."""
    if kind is None:
        return value
    if isinstance(value, list):
        return [function(kind, item) for item in cast("list[JSON]", value)]
    return function(kind, cast("JSON", value)) if isinstance(value, dict) else value


@cache
def _result_kinds(kind: type[Any]) -> Mapping[str, type[Any] | None]:
    """Return the members of a result: the result that each is, or is a list of; None for other values."""
    types = _member_types(kind)
    return {name: next(filter(is_dataclass, types[name]), None) for name in types}


@cache
def _nullable_names(kind: type[Any]) -> frozenset[str]:
    return frozenset(name for name, types in _member_types(kind).items() if NoneType in types)


def _member_types(kind: type[Any]) -> dict[str, list[Any]]:
    """Return the types that each member may have; of lists, the types of their items."""
    hints = get_type_hints(kind)
    unions = {each.name: _types_of(hints[each.name]) for each in fields(kind)}
    return {
        name: [get_args(each)[0] if get_origin(each) is list else each for each in types]
        for name, types in unions.items()
    }


def _types_of(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)
