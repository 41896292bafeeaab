"""A tool call: the request, its progress through the router, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..clock import Clock
from ..core import Core
from ..errors import ApprovalRequired
from ..journal.entries import CallEntry, excerpt
from ..json_codec import JSON
from ..live.binding import Binding
from ..live.session import LiveSession
from ..metrics.instruments import error_type
from ..records import Principal
from ..services import CallContext, ToolResult, ToolSpec
from .deadline import WaitProgress
from .hand_over import HandOver
from .notices import Delivery
from .receipts import Operation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
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
    """The session's epoch when the caller chose the id: then the receipt of the call is kept in memory."""
    is_repeat: bool = False
    """Whether the caller has sent this id before."""
    acknowledged_operations: Sequence[str] = ()
    """Earlier operations of the session whose results the caller has received and will not request again."""
    run: str | None = None
    """The run that the caller counts the call to, for the journal."""
    namespace: str | None = None
    client: str | None = None
    """The name of the caller's client in its handshake."""
    reported_seconds: float = 0.0
    """Seconds of waiting that were reported to its caller before the call; see Waiting."""
    hand_over: HandOver | None = None
    """Set if the call may go on without its caller."""
    is_internal: bool = False
    """Whether Statehold makes the call itself, and so nobody approves it."""
    sharee: str | None = None
    """The key of its caller if `principal` shares the session with it: then the limits of calls are those of the caller."""


@dataclass(slots=True, eq=False)
class Call:
    """The progress of one call through the router. It lives as long as the call."""

    request: Request
    session: LiveSession
    binding: Binding
    context: CallContext
    waiting: WaitProgress
    """Reports to the caller while the call waits."""
    operation: Operation | None = None
    upstream: str | None = None
    """The id of the upstream's task that runs it."""
    approval: str | None = None
    """The id of its approval by a person."""
    used_approval: str | None = None
    """The digest of what its approval was for, once that is used up."""
    started_at: float = 0.0
    """When it began to run; 0 before."""
    waits_since: float | None = None
    """Since when it has waited, or had until it was sent; None while it waits for a person."""
    was_sent: bool = False
    """Whether the call may have reached the server."""
    sent_at: float | None = None
    """When it was sent first; None if it was not."""
    ended_at: float | None = None
    """When the call over the connection ended, None when it was not sent; later snapshots include its effects."""
    result: ToolResult | None = None
    delivery: Delivery | None = None
    """The notice that the answer or the refusal carries."""

    @property
    def has_due_notice(self) -> bool:
        """Whether its session or its binding has a notice for the next answer."""
        return self.session.notice is not None or self.binding.notice is not None

    @property
    def service(self) -> str:
        return self.request.service

    @property
    def tool(self) -> str:
        return self.request.tool

    @property
    def spec(self) -> ToolSpec | None:
        return self.binding.service.specs.get(self.request.tool)

    @property
    def continues(self) -> bool:
        """Whether its caller answers the questions of an earlier call."""
        options = self.context.options
        return options.input_responses is not None or options.request_state is not None

    @property
    def stored_operation_id(self) -> str | None:
        """Its operation id if its receipt is stored, else None."""
        operation = self.operation
        return operation.id if operation is not None and operation.origin is None else None

    def record_sent(self, was_sent: bool) -> None:
        """Record whether the call may have reached the server, and so may have had an effect."""
        self.was_sent = was_sent
        if not was_sent:
            self.sent_at = self.ended_at = None
        if self.operation is not None:
            self.operation.effective = was_sent

    async def wait_for_person(self, wait: Awaitable[T], clock: Clock) -> T:
        """Wait for a person, which does not count as a wait of the call."""
        self.waits_since = None
        result = await wait
        self.waits_since = clock.now()
        return result

    def measure(self, core: Core, status: str) -> None:
        """Count the call, which has ended with a status."""
        now, metrics, label = core.clock.now(), core.metrics, error_type(status)
        has_failed = label not in ("", ApprovalRequired.code)
        self.session.activity.end(self, status, now, has_failed=has_failed)
        if self.waits_since is not None:
            seconds = (self.sent_at or now) - self.waits_since
            metrics.waits.record(max(0.0, seconds), self.service)
        if self.sent_at is None:
            metrics.unsent.add(self.service, label)
            return
        tool = self.tool if metrics.has_tools and self.spec is not None else ""
        metrics.calls.record((self.ended_at or now) - self.sent_at, self.service, tool, label)

    def entry(
        self,
        core: Core,
        started_at: float,
        ended_at: float | None = None,
        outcome: ToolResult | BaseException | None = None,
    ) -> CallEntry:
        """Return the journal entry of the call, its `seq` still to be set; without an outcome, that of its start."""
        request, session = self.request, self.session
        return CallEntry(
            session.id,
            core.node.id,
            session.record.epoch,
            0,
            request.service,
            request.tool,
            request.arguments,
            started_at,
            ended_at,
            self.binding.record.generation,
            excerpt(outcome) if isinstance(outcome, ToolResult) else outcome,
            request.operation_id,
            request.run,
            core.policy.journal_bytes,
            core.redactor,
            spec=self.spec,
        )


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The answer to a call: the result, its session, and a notice to show first."""

    payload: JSON
    session: LiveSession
    notice: str | None = None
    is_first: bool = False
    """Whether it is the first answer in a session that its caller did not create itself."""
    accepts_notice: bool = True
    """Whether structured content may repeat the notice; see notices.py."""
    delivery: Delivery | None = None
    """The notice, for Router.return_notice()."""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The session of a recorded answer. It may be closed, or another node's."""

    fields: JSON

    @property
    def id(self) -> str:
        return self.fields["id"]

    def summary(self) -> JSON:
        return self.fields


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The answer to a call as its receipt has it."""

    payload: JSON
    session: RecordedSession
    notice: str | None
    service: str = ""
    is_first: bool = False
    accepts_notice: bool = True

    @classmethod
    def of(cls, result: ToolResult, session: JSON, service: str = "") -> RecordedAnswer:
        """Return the answer with a result, and the summary of its session."""
        return cls(result.payload, RecordedSession(session), result.notice, service)
