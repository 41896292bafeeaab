"""The seams between a session and what it keeps alive.

A Service is a configured kind of live connection; it lives as long as the process. A Connection is one live connection of
one service for one session; exactly one task, its owner, opens and closes it, and any task may call it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import anyio

from .json_codec import JSON

PausePolicy = Literal["snapshot", "keep", "release"]
"""What pausing a session does to a connection: save and close it, leave it open while the budget allows, or close it."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool of a service, as the service describes it.

    `definition` is the JSON of an MCP `Tool`: name, inputSchema, and whatever else it came with.
    """

    name: str
    definition: JSON
    secret: frozenset[str] = frozenset()
    """Names of arguments, also nested ones, whose texts the journal gets only when a result says what of them is secret."""

    def hint(self, name: str) -> bool:
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get(name) is True  # pyright: ignore[reportUnknownMemberType]

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, by its own declaration (readOnlyHint)."""
        return self.hint("readOnlyHint")

    @property
    def repeatable(self) -> bool:
        """Whether running it twice does no harm, by its own declaration (readOnlyHint or idempotentHint)."""
        return self.reads or self.hint("idempotentHint")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a service saved of a connection: JSON plus named blobs. Secret: never logged, never shown."""

    data: JSON = field(default_factory=dict[str, Any])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class Restored:
    """What opening a connection brought back, in words a model can use. Empty strings: nothing to say."""

    restored: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """What a service may know of the session it opens a connection for."""

    id: str
    name: str | None
    namespace: str
    owner: str
    generation: int
    """The generation the connection being opened will have."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class CallResult:
    """The JSON of an MCP `CallToolResult`, or an `InputRequiredResult` when `input_required`."""

    payload: JSON
    secrets: Sequence[str] | None = None
    """Texts that the journal must not hold, of the arguments or the result; None: the result does not know."""
    notice: str | None = None
    """What its answer says first; the receipt of an operation keeps it for repeats."""

    @property
    def is_error(self) -> bool:
        return self.payload.get("isError") is True

    @property
    def input_required(self) -> bool:
        return self.payload.get("resultType") == "input_required"


class CallContext(Protocol):
    """What a connection may use of the request it serves. Valid until the call returns.

    All methods may be called at any time during the call; after it they do nothing.
    """

    @property
    def meta(self) -> Mapping[str, Any]:
        """The caller's `_meta` as it may be forwarded: without the keys that belong to its own hop."""
        ...

    @property
    def wants_progress(self) -> bool: ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages the caller asked for, None for none."""
        ...

    @property
    def capabilities(self) -> JSON:
        """The JSON of the caller's MCP `ClientCapabilities`, empty when unknown."""
        ...

    @property
    def input_responses(self) -> JSON | None:
        """The caller's answers when this request continues an `InputRequiredResult` (SEP-2322), else None."""
        ...

    @property
    def request_state(self) -> str | None:
        """The upstream's `requestState` that belongs to `input_responses`."""
        ...

    @property
    def can_return_input_required(self) -> bool:
        """Whether an `InputRequiredResult` may be returned to this caller as it is (2026-07-28)."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether a question could still reach the caller, whose client may be gone while the call goes on."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, params: JSON) -> None:
        """Pass on a `notifications/message`; `params` are its MCP params."""
        ...

    async def ask(self, method: str, params: JSON) -> JSON:
        """Put `elicitation/create`, `sampling/createMessage` or `roots/list` to the caller; return its result.

        The time limit of the call stands still meanwhile, so waiting for the answer has a limit of its own.

        Raises:
            NotAllowed: when the caller did not declare that it can answer, or did not.
        """
        ...


class Connection(Protocol):
    """One live connection. `call` may run concurrently up to the service's `concurrency`."""

    lost: anyio.Event
    """Set when the far side is gone, whoever noticed. Never set by aclose()."""

    reason: str | None
    """Why it was lost: exit code or signal, stderr tail. For logs and `last_error`; secrets removed."""

    opened: Restored
    """What the snapshot it was opened with brought back."""

    @property
    def busy(self) -> str | None:
        """What keeps it from being paused now, in words: what would be lost although it is saved first. None: nothing."""
        ...

    @property
    def unsaved(self) -> bool:
        """Whether something may have changed since it was last saved, so that a checkpoint is worth taking.

        Asked at the end of each call, whatever became of the call. What changes without one has to be told; see Telling.
        """
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> CallResult:
        """Run one tool. Cancelling the caller cancels it upstream.

        Raises:
            OutcomeUnknown: the connection died after the request was sent.
            ConnectionLost: the connection was dead before it was sent.
            InvalidArgument: the far side answered with a JSON-RPC error for the request itself.
        """
        ...

    async def snapshot(self) -> Snapshot | None:
        """Save what can be restored, leaving the connection usable. None: this service saves nothing."""
        ...

    async def checkpoint(self) -> Snapshot | None:
        """Save in passing: as snapshot() does, but what takes long may stay as it was when it was last saved."""
        ...

    async def aclose(self) -> None:
        """Close within a bound, whatever the far side does. May be called twice, and while calls are in flight."""
        ...


class Forwarding(Protocol):
    """A connection that also answers MCP requests other than tools/call (resources, prompts, completion)."""

    async def request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
        """Forward one request and return its result. Raises as Connection.call does."""
        ...


@runtime_checkable
class SelfChanging(Protocol):
    """A connection in which something may change by itself, after a call or without any."""

    on_unsaved: Callable[[], None]
    """Called each time something became unsaved by itself. The session layer sets it once the connection is open.

    It returns at once, and may be called as often as there is something to tell, also after aclose(). Whether and when a
    checkpoint is taken is not the connection's business; it does not count as use of the session.
    """


@runtime_checkable
class Diagnosing(Protocol):
    """A connection to something that writes diagnostics beside the protocol."""

    def stderr_tail(self) -> str:
        """Return the last lines of it, bounded, secrets removed. May be called after aclose() too."""
        ...


@runtime_checkable
class Offering(Protocol):
    """A service whose sessions answer MCP requests other than tools/call."""

    @property
    def capabilities(self) -> Collection[str]:
        """The MCP capabilities behind it: "resources", "prompts". Nothing before it was probed."""
        ...

    @property
    def prompts(self) -> Sequence[JSON]:
        """The prompts it listed when it was probed."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A service that answers such requests itself, so that no connection is opened for them."""

    async def answer(self, session: SessionView, method: str, params: JSON) -> JSON:
        """Answer one request for a session. Raises as Connection.call does."""
        ...


@runtime_checkable
class SnapshotChecker(Protocol):
    """A service that can tell what belongs in its snapshots."""

    def check_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return the part of an imported snapshot that this service itself would have saved. The rest is dropped.

        Raises:
            InvalidArgument: A value cannot be one that this service saved.
        """
        ...


class Service(Protocol):
    """A configured kind of live connection. Its settings do not change while the process runs."""

    name: str
    config_hash: str
    """Changes when the configuration changes in a way that makes old snapshots or tool lists doubtful."""
    pause: PausePolicy
    scope: Literal["session", "shared"]
    concurrency: int
    """How many calls of one session may run at once; 1 means in order."""
    eager: bool
    """Whether session_create opens it, instead of the first call."""
    call_seconds: float
    checkpoint_seconds: float | None
    """How often at most a checkpoint is taken after calls, None for never."""

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
            ServiceUnavailable: with the cause, and the far side's last words where it has any.
        """
        ...

    def tool(self, name: str) -> ToolSpec | None:
        """Return what is known of a tool, without asking for it; None may change everything."""
        ...


__all__ = [
    "Answering",
    "CallContext",
    "CallResult",
    "Connection",
    "Diagnosing",
    "Forwarding",
    "Offering",
    "PausePolicy",
    "Restored",
    "Service",
    "SessionView",
    "Snapshot",
    "SnapshotChecker",
    "SelfChanging",
    "ToolSpec",
]
