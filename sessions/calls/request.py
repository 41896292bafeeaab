"""One tool call as it comes in, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..json_codec import JSON
from ..records import Principal
from .deliveries import Delivery


@dataclass(slots=True)
class Answer:
    """What a caller gets: the result, the session's summary after the call, and what has to be said first."""

    payload: JSON
    session: dict[str, Any]
    notice: str | None = None
    accepts_notice: bool = True
    """Whether structured content may repeat the notice; see notices.py."""


@dataclass(slots=True)
class Request:
    """One call as it comes in."""

    principal: Principal
    session: str
    """An id, or a name of the principal's."""
    service: str
    tool: str
    arguments: Mapping[str, Any]
    operation_id: str | None = None
    """At most one call of this id is run in the session; a repeat gets its result."""
    epoch: int | None = None
    """The session's epoch as the caller knew it when it made the id; then the id is one of attempts.py."""
    repeated: bool = False
    """Whether the caller has sent this id before."""
    settled: Sequence[str] = ()
    """Earlier operations of the session whose results the caller has, and will not ask for again."""
    run: str | None = None
    """What the caller groups its calls by, for the journal."""
    namespace: str | None = None
    waited: float = 0.0
    """The seconds of waiting that its caller was told of before the call; see Waiting."""
    sent: bool = False
    """Whether it may have reached the far side."""
    ended_at: float | None = None
    """When the far side was done with it, None when it was not sent: what is saved from then on has what it did."""
    delivery: Delivery | None = None
    """The notice that its answer, or its refusal, carries; for Router.return_notice()."""


__all__ = ["Answer", "Request"]
