"""What a connection needs of its transport. Above: the wire. Below: a child process, Streamable HTTP or HTTP+SSE."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from mcp.shared.message import SessionMessage

from ..sdk import ReadStream, WriteStream


class Transport(Protocol):
    """An open transport: the SDK's two streams, and what happened to them."""

    @property
    def read(self) -> ReadStream[SessionMessage | Exception]: ...

    @property
    def write(self) -> WriteStream[SessionMessage]: ...

    @property
    def http(self) -> bool:
        """Whether requests carry MCP headers."""
        ...

    def never_sent(self, number: int) -> bool:
        """Whether the request of that id is known not to have left."""
        ...

    def gone(self) -> str | None:
        """Why the far side no longer knows this connection, if it said so."""
        ...

    async def farewell(self) -> tuple[str, str]:
        """Say why the read stream ended, and the last words of the far side. Waits a moment for both."""
        ...

    def words(self) -> str:
        """The last words of the far side up to now."""
        ...

    def hint(self) -> str:
        """Add what the transport saw to the story of a request that was refused; empty for nothing."""
        ...


OpenChannel: TypeAlias = AbstractAsyncContextManager[Transport]


__all__ = ["Transport", "OpenChannel"]
