"""One incoming tool call, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..json_codec import JSON
from ..records import Principal
from .deliveries import Delivery


@dataclass(slots=True)
class Answer:
    """The answer to a call: the result, the session's summary after the call, and a notice to show first."""

    payload: JSON
    session: dict[str, Any]
    notice: str | None = None
    accepts_notice: bool = True
    """Whether structured content may repeat the notice; see notices.py."""


@dataclass(slots=True)
class Request:
    """One incoming call."""

    principal: Principal
    session: str
    """An id, or a name of the principal's."""
    service: str
    tool: str
    arguments: Mapping[str, Any]
    operation_id: str | None = None
    """At most one call with this id runs in the session; a repeat gets its result."""
    epoch: int | None = None
    """The session's epoch when the caller chose the id; with it, attempts.py handles the id."""
    repeated: bool = False
    """Whether the caller has sent this id before."""
    settled: Sequence[str] = ()
    """Earlier operations of the session whose results the caller has received and will not request again."""
    run: str | None = None
    """The run that the caller counts the call to, for the journal."""
    namespace: str | None = None
    waited: float = 0.0
    """Seconds of waiting that were reported to its caller before the call; see Waiting."""
    sent: bool = False
    """True once it may have reached the server."""
    ended_at: float | None = None
    """When the call over the connection ended, None when it was not sent; later snapshots include its effects."""
    delivery: Delivery | None = None
    """The notice that its answer or refusal carries; for Router.return_notice()."""


__all__ = ["Answer", "Request"]
