"""The interface between JsonRpcConnection and a transport: a child process, Streamable HTTP or HTTP+SSE."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mcp.shared.message import SessionMessage

from ....sessions.json_codec import JSON
from .http_errors import BrokenExchange, HttpRefusal

if TYPE_CHECKING:
    from ..sdk import ReadStream, WriteStream


@dataclass(frozen=True, slots=True)
class EarlierTraffic:
    """The traffic of a transport in an earlier process, as far as it is known."""

    calls: Mapping[int, str] = field(default_factory=dict[int, str])
    """The operation ids of calls that were sent, by the id of their request."""
    has_all_calls: bool = False
    """Whether `calls` is complete."""
    answered: Collection[int | str] = ()
    """The ids of the server's requests that were answered."""
    askers: Mapping[int | str, int] = field(default_factory=dict[int | str, int])
    """The ids of the requests of calls in `calls` that asked, by the ids of the server's requests."""
    lines: Sequence[bytes] = ()
    """The last messages that were received."""


class TransportResumption:
    """How the other end of a transport goes on when this process dies, so that a later one can resume it.

    This one has no session and notes no calls; a transport whose other end has more overrides that.
    """

    keeps_calls = False
    """Whether the answers to calls in flight come to the next process."""
    sandbox: str | None = None
    """The digest of the settings of its sandbox; see ServiceSandboxes."""

    @property
    def session_id(self) -> str | None:
        """The id under which the other end knows it, None if it has none. Secret."""
        return None

    def leave(self) -> None:
        """Have the end of the transport's block leave the other end as it is: another process has it by now."""

    async def keep(self, seconds: float) -> None:
        """Have the other end live at least so long without a process, as a call is to outlive this one."""

    def record_call(self, number: int, operation_id: str) -> None:
        """Have a call with an operation id noted when it is sent, for the process after this one."""

    def record_asker(self, question: int | str, number: int) -> None:
        """Have the question of a call with an operation id noted, for the process after this one."""

    def earlier_traffic(self) -> EarlierTraffic:
        """Return what an earlier process sent and received over it; empty when this one opened it."""
        return EarlierTraffic()


class UpstreamTransport(Protocol):
    """An open transport: the two streams of the SDK, and explanations for their errors."""

    @property
    def read_stream(self) -> ReadStream[SessionMessage | Exception]: ...

    @property
    def write_stream(self) -> WriteStream[SessionMessage]: ...

    @property
    def http(self) -> bool:
        """Whether requests carry MCP headers."""
        ...

    def is_unsent(self, number: int) -> bool:
        """Whether the request with that id is known not to have been sent."""
        ...

    def take_failure(self, number: int) -> HttpRefusal | BrokenExchange | None:
        """Return why a request has no answer in MCP although the transport goes on, once; None if that is not known."""
        ...

    @property
    def has_session(self) -> bool:
        """Whether the other end keeps a session for it that it can forget while the transport stays open."""
        ...

    async def describe_end(self) -> tuple[str, str]:
        """Return why the read stream ended, and the server's last output. Waits a short time for both."""
        ...

    def last_output(self) -> str:
        """Return the server's last output up to now."""
        ...

    def noise(self) -> str:
        """Return the last text on stdout that is not MCP; empty without any."""
        ...

    @property
    def noise_at(self) -> float:
        """When the last part of a text on stdout arrived that is not MCP, as anyio.current_time(); minus infinity: never."""
        ...

    @property
    def pid(self) -> int | None:
        """The id of the process at its other end; None if that is no child process."""
        ...

    @property
    def resumption(self) -> TransportResumption | None:
        """How its other end outlives this process; None if it ends with it."""
        ...


OpenTransport: TypeAlias = AbstractAsyncContextManager[UpstreamTransport]


class Handler(Protocol):
    """Receives the requests and notifications of the upstream."""

    async def on_request(self, method: str, params: JSON, number: int | None) -> JSON:
        """Answer a request of the upstream. Raises MCPError to refuse it.

        `number` is the id of our request that caused it; None where the transport does not tell.
        """
        ...

    def on_notify(self, method: str, params: JSON, number: int | None) -> None:
        """Handle a notification, in the order of arrival. Must not block. For `number`, see on_request()."""
        ...

    def on_lost(self, reason: str) -> None:
        """Handle the loss of the connection; `reason` says why. Not called when we closed it."""
        ...
