"""The interface of the client's three transports to a Statehold.

A transport speaks revision 2026-07-28 only, in which requests are independent of each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON


VERSION: Final = "2026-07-28"
HEADER_MISMATCH: Final = -32020
INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601
NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The parameter that goes into the header `Mcp-Name`."""

ProgressCallback = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives the progress of a call: the amount done, the total, and a message."""


class TransportBroken(Exception):
    """Raised when a request got no answer. `sent` says whether it may have reached the server."""

    def __init__(self, cause: str, *, sent: bool) -> None:
        super().__init__(cause)
        self.cause = cause
        self.sent = sent


class JsonRpcError(Exception):
    """Raised when a request was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class AccessDenied(Exception):
    """Raised when the server denies access: the token is missing, wrong or not sufficient."""


class Transport(Protocol):
    """A transport to a Statehold. open() and aclose() may be called in any task, request() in many tasks at once."""

    breaks: bool
    """Whether a request can be left without an answer while both sides go on."""

    async def open(self) -> None:
        """Open it. Opening an open transport does nothing.

        Raises:
            TransportBroken: the server cannot be reached.
        """
        ...

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        headers: Mapping[str, str] | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> JSON:
        """Send a request and return its result. Cancelling it cancels it at the server.

        Raises:
            TransportBroken: no answer came. The next request connects again.
            JsonRpcError: it was answered with a JSON-RPC error.
            AccessDenied: the server denies access.
        """
        ...

    async def aclose(self) -> None:
        """End it, within a bound. May be called twice."""
        ...


def token_of(params: JSON) -> Any:
    """Return the progress token of a request."""
    return params.get("_meta", {}).get("progressToken")


__all__ = [
    "HEADER_MISMATCH",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "NAMED_BY",
    "VERSION",
    "TransportBroken",
    "Transport",
    "AccessDenied",
    "ProgressCallback",
    "JsonRpcError",
    "token_of",
]
