"""The interface between JsonRpcConnection and a transport: a child process, Streamable HTTP or HTTP+SSE."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from mcp.shared.message import SessionMessage

from ..sdk import ReadStream, WriteStream


class ClosingStream:
    """A stream of the SDK that closes when its `async with` block ends."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.aclose()
        return None


class Transport(Protocol):
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

    def loss_reason(self) -> str | None:
        """Return the reason if the server reported that it no longer knows this connection, else None."""
        ...

    async def describe_end(self) -> tuple[str, str]:
        """Return why the read stream ended, and the server's last output. Waits a short time for both."""
        ...

    def last_output(self) -> str:
        """Return the server's last output up to now."""
        ...

    def error_detail(self) -> str:
        """Return a detail, such as the HTTP status, for the error of a refused request; empty without one."""
        ...


OpenTransport: TypeAlias = AbstractAsyncContextManager[Transport]


__all__ = ["ClosingStream", "OpenTransport", "Transport"]
