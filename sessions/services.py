"""The protocols between a session and its live connections.

A Service is a configured kind of live connection; it lives as long as the process. A Connection is one live connection of
one service for one session; exactly one task, its owner, opens and closes it, and any task may call it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import anyio

from .errors import OutcomeUnknown
from .json_codec import JSON
from .repeats import has_hint

PausePolicy = Literal["snapshot", "keep", "release"]
"""Effect of a pause on a connection: save and close it, leave it open while the budget allows, or close it."""
ApprovalRule: TypeAlias = Literal["never", "destructive", "all"] | Sequence[str]
"""The calls that a person approves: none, those of tools that may destroy something, all, or those of these tools."""
LossPolicy = Literal["pause", "close"]
"""The fate of a session whose lost connection cannot be opened again: its next call tries again, or it is closed."""

SERVERS_LEVEL: Final = ""
"""The log level of a caller that leaves it to the server, as clients of older protocols do until they set one."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool of a service, as the service describes it.

    `definition` is the JSON of an MCP `Tool`: name, inputSchema and any other fields it came with.
    """

    name: str
    definition: JSON
    secret: frozenset[str] = frozenset()
    """Names of arguments, also nested ones. The journal gets their texts only if a result says which parts are secret."""

    @property
    def reads(self) -> bool:
        """Whether the tool declares that it changes nothing (readOnlyHint)."""
        return has_hint(self.definition, "readOnlyHint")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Saved data of a connection: JSON plus named blobs. Secret: never logged, never shown."""

    data: JSON = field(default_factory=dict[str, Any])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The parts restored and lost when a connection was opened, in words a model can use. Empty: nothing to say."""

    restored: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as a service sees it when it opens a connection."""

    id: str
    name: str | None
    namespace: str
    owner: str
    generation: int
    """The generation the connection being opened will have."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    epoch: int = 0
    """The epoch in which this node owns the session."""
    has_older_caller: bool = False
    """Whether its last caller takes no questions as results, as clients of older protocols."""


@dataclass(slots=True)
class ToolResult:
    """The JSON of an MCP `CallToolResult`, or an `InputRequiredResult` when `input_required`."""

    payload: JSON
    secrets: Sequence[str] | None = None
    """Texts of the arguments or the result that the journal must not hold; None: not known."""
    notice: str | None = None
    """Text that precedes the result in its answer; the receipt of an operation keeps it for repeats."""
    facts: JSON | None = None
    """Facts of the step for its journal entry, with their secrets; no caller gets them. See journal/facts.py."""

    @property
    def is_error(self) -> bool:
        return self.payload.get("isError") is True

    @property
    def input_required(self) -> bool:
        return self.payload.get("resultType") == "input_required"


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """A request with which a caller calls, as far as a connection may use it."""

    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The caller's `_meta` as it may be passed on: without the keys of its own hop."""
    wants_progress: bool = False
    log_level: str | None = None
    """The lowest level of log messages the caller asked for, None for none, SERVERS_LEVEL to leave it to the server."""
    input_responses: JSON | None = None
    """The caller's answers when this request continues an `InputRequiredResult` (SEP-2322), else None."""
    request_state: str | None = None
    """The upstream's `requestState` that belongs to `input_responses`."""
    can_return_input_required: bool = False
    """Whether an `InputRequiredResult` may be returned to this caller as it is (2026-07-28)."""
    result_tokens: int | None = None
    """The tokens of a text with an outline, such as a page, that the caller reads; None leaves it to the service."""
    is_owner: bool = True
    """Whether the caller is the owner of the session, and may hear what another call of it may have caused."""
    exact: bool = False
    """Whether the texts of the result are needed as they are, since no model and no person reads them."""
    may_approve: bool = False
    """Whether the answers of its client are those of a person who may approve calls."""

    def ask_to_open(self, url: str, message: str) -> JSON:
        """Return the parameters of `elicitation/create` that ask the person of the caller to open an address."""
        params: JSON = {"mode": "url", "message": message, "url": url}
        if not self.can_return_input_required:
            # Of 2025-11-25 only.
            params["elicitationId"] = secrets.token_urlsafe(16)
        return params


class CallContext(Protocol):
    """The call that a connection serves. Valid until the call returns.

    All methods may be called at any time during the call; after it they do nothing.
    """

    @property
    def options(self) -> CallerOptions:
        """The request of the caller: of a parked call that continues, the last one."""
        ...

    @property
    def capabilities(self) -> JSON:
        """The JSON of the caller's MCP `ClientCapabilities`, empty when unknown."""
        ...

    @property
    def wants_facts(self) -> bool:
        """Whether the journal keeps the facts of the call, so that the result should have some."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether a question could still reach the caller. Its client may be gone while the call runs."""
        ...

    @property
    def operation_id(self) -> str | None:
        """The operation id of the call if its receipt is stored, else None."""
        ...

    @property
    def note_upstream_task(self) -> Callable[[str], Awaitable[None]] | None:
        """Takes the id of the upstream's task that runs the call, as soon as it is known. Secret. None: it is not needed."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, params: JSON) -> None:
        """Pass on a `notifications/message`; `params` are its MCP params."""
        ...

    async def ask(self, method: str, params: JSON) -> JSON:
        """Put `elicitation/create`, `sampling/createMessage` or `roots/list` to the caller; return its result.

        The time limit of the call is suspended meanwhile, so waiting for the answer has a limit of its own.

        Raises:
            NotAllowed: when the caller did not declare that it can answer, or did not.
        """
        ...


class Resumption:
    """How a connection outlives its process: Service.resume() of a later process goes on with its other end.

    It lives as long as the connection. After a resumption it also has the calls that the earlier process had in flight. This
    one knows no calls; a connection whose other end answers them overrides that.
    """

    @property
    def token(self) -> str | None:
        """The argument of Service.resume(); None if the connection cannot be resumed after all. Secret; fixed once open."""
        return None

    @property
    def keeps_calls(self) -> bool:
        """Whether calls in flight run on at the other end when the process ends, and the next one gets their answers."""
        return False

    def leave(self) -> None:
        """Have aclose() leave the other end as it is: another process has it by now, or goes on with it."""

    async def keep(self, seconds: float) -> None:
        """Have the other end wait at least so long for the next process. Never raises."""

    def was_sent(self, operation_id: str) -> bool | None:
        """Whether the earlier process sent the call of an operation; None when that is not known."""
        return None

    def begin(self, operation_id: str, ctx: CallContext) -> Callable[[], Awaitable[ToolResult]]:
        """Take on a call that the earlier process sent: its questions go to `ctx`.

        The function, called once, returns its result and raises as Connection.call does. If cancelled, it cancels the call.
        """
        raise OutcomeUnknown("The server ended during the call.")

    def ask_again(self) -> None:
        """Put the questions that were open at the end of the earlier process, after begin() of all calls."""

    async def follow(self, task: str, ctx: CallContext) -> ToolResult:
        """Return the result of a call that the other end runs as a task; see CallContext.note_upstream_task."""
        raise OutcomeUnknown("The server ended during the call.")


class Connection(Protocol):
    """One live connection. `call` may run concurrently up to the service's `concurrency`."""

    lost: anyio.Event
    """Set when the other end is gone, however that was noticed. Never set by aclose()."""

    reason: str | None
    """Why it was lost: exit code or signal, stderr tail. For logs and `last_error`; secrets removed."""

    restore_report: RestoreReport
    """The parts of its snapshot that were restored and lost."""

    @property
    def busy(self) -> str | None:
        """The work that a pause would lose even if it is saved first, in words; None: it may be paused."""
        ...

    @property
    def unsaved(self) -> bool:
        """Whether something may have changed since it was last saved, so that a checkpoint is worth taking.

        Read at the end of each call, with any outcome. Changes outside a call are reported through SelfChanging.
        """
        ...

    @property
    def resumption(self) -> Resumption | None:
        """How it outlives this process; None if it ends with it. Read once it is open."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        """Run one tool. Cancelling the caller cancels it upstream.

        Raises:
            OutcomeUnknown: the connection died after the request was sent.
            ConnectionLost: the connection was dead before it was sent.
            InvalidArgument: the server answered with a JSON-RPC error for the request itself.
        """
        ...

    async def snapshot(self) -> Snapshot | None:
        """Save the state that can be restored; the connection stays usable. None: this service saves nothing."""
        ...

    async def checkpoint(self) -> Snapshot | None:
        """Save as snapshot() does, but parts that take long may stay as they were last saved."""
        ...

    async def aclose(self) -> None:
        """Close within a bound, even if the other end hangs. May be called twice, and while calls are in flight."""
        ...


@runtime_checkable
class RequestSender(Protocol):
    """A connection that also answers MCP requests other than tools/call (resources, prompts, completion)."""

    async def request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
        """Send one request and return its result. Raises as Connection.call does."""
        ...


@runtime_checkable
class SelfChanging(Protocol):
    """A connection in which something may change by itself, after a call or without any."""

    def report_changes(self, on_unsaved: Callable[[], None]) -> None:
        """Have `on_unsaved` called from now on each time something became unsaved by itself.

        The session layer calls this when the connection is open; only then can it be saved. `on_unsaved` returns at once. It
        may be called any number of times, also after aclose(). The session layer decides whether and when to take a
        checkpoint; a change does not count as use of the session.
        """
        ...


@runtime_checkable
class Diagnosing(Protocol):
    """A connection to a program that writes diagnostics outside the protocol."""

    stray_output: str
    """The text that the program wrote where messages belong during the last call that was cancelled; empty without any."""

    def stderr_tail(self) -> str:
        """Return the last lines of the diagnostics, bounded, secrets removed. May be called after aclose() too."""
        ...


@runtime_checkable
class ProcessBacked(Protocol):
    """A connection to processes of this machine."""

    @property
    def pids(self) -> Collection[int]:
        """The ids of the processes at its other end, without their children; empty if they are elsewhere or have ended."""
        ...


@runtime_checkable
class Offering(Protocol):
    """A service whose sessions answer MCP requests other than tools/call."""

    @property
    def capabilities(self) -> Collection[str]:
        """The MCP capabilities behind it: "resources", "prompts". Empty before the first probe."""
        ...

    @property
    def prompts(self) -> Sequence[JSON]:
        """The prompts it listed when it was probed."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A service that answers such requests itself, so that no connection is opened for them."""

    async def answer(
        self,
        session: SessionView,
        method: str,
        params: JSON,
        saved: Callable[[], Awaitable[Snapshot | None]] | None = None,
    ) -> JSON:
        """Answer one request for a session. Raises as Connection.call does, and what `saved` raises.

        `saved` returns the newest snapshot of the session; it is given while no connection is open.
        """
        ...


@runtime_checkable
class SnapshotChecker(Protocol):
    """A service that checks imported snapshots."""

    def check_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return the part of an imported snapshot that this service itself would have saved. The rest is dropped.

        Raises:
            InvalidArgument: A value cannot be one that this service saved.
        """
        ...


@runtime_checkable
class Drivable(Protocol):
    """A connection that a person can drive in place of the agent. No call runs from begin to end."""

    async def begin_human_control(self) -> None:
        """End recordings, and record nothing until end_human_control(). A second call does nothing.

        Raises:
            SessionError: a recording could not be ended.
        """
        ...

    async def end_human_control(self) -> list[str]:
        """Go on with the agent, without what was recorded of the person. Return the changes as sentences.

        Does nothing and returns nothing when no person had control.
        """
        ...


@dataclass(frozen=True, slots=True)
class PageView:
    """The pages of a connection as a person sees them, in texts without secrets."""

    url: str
    """The address of the current page; empty if there is none."""
    title: str
    tabs: Sequence[str]
    """The addresses of all tabs."""
    current: int | None
    """The index of the current tab."""
    jpeg: bytes | None = None
    """A picture of the current page."""
    problem: str | None = None
    """Why there is no picture."""


@runtime_checkable
class Viewable(Protocol):
    """A connection with pages that can be shown."""

    async def view(self, *, most_bytes: int) -> PageView:
        """Return its pages as they are, even during a call, with a picture of at most so many bytes. Nothing changes."""
        ...


class Service(Protocol):
    """A configured kind of live connection. Its settings do not change while the process runs."""

    name: str
    config_hash: str
    """Changes when the configuration changes in a way that makes old snapshots or tool lists doubtful."""
    pause: PausePolicy
    on_lost: LossPolicy
    scope: Literal["session", "shared"]
    concurrency: int
    """How many calls of one session may run at once; 1 means in order."""
    eager: bool
    """Whether session_create opens it, instead of the first call."""
    call_seconds: float
    checkpoint_seconds: float | None
    """How often at most a checkpoint is taken after calls, None for never."""

    @property
    def approve(self) -> ApprovalRule:
        """The calls that a person approves."""
        ...

    @property
    def connect_seconds(self) -> float:
        """How long opening a connection may take; the first start of a command may get more than later ones."""
        ...

    async def tools(self) -> Sequence[ToolSpec]:
        """Return its tools: probed once, then remembered. Raises ServiceUnavailable."""
        ...

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Connection:
        """Open a connection for a session. The task that called it is the owner and will call aclose().

        Raises:
            ServiceUnavailable: with the cause, and the last words of the server if there are any.
        """
        ...

    async def resume(
        self, session: SessionView, token: str, snapshot: Snapshot | None
    ) -> Connection:
        """Resume a connection that another process opened, in the same generation. The task that called it is the owner.

        `token` is that of its Resumption; `snapshot` is the last one that was saved. The connection needs it only for what
        was never in use since.

        Raises:
            ConnectionLost: it is gone; the message says why.
            ServiceUnavailable: it may still be there; a later call tries again.
        """
        ...

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The descriptions of its tools by name, as far as they are known. Another tool may change everything."""
        ...
