"""The interfaces between a client and its sessions: a session knows no more of its client than this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Unpack

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from .options import CallOptions
    from .results import CallResult, ResourceContent, Tool


class Caller(Protocol):
    """Calls tools and reads resources of one server. It lives as long as the client; any task may use it."""

    async def call(
        self,
        session_id: str | None,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        retry: bool = True,
        **options: Unpack[CallOptions],
    ) -> CallResult:
        """Call a tool in a session, or in none. `retry` waits for a server that cannot be reached.

        Raises:
            SessionError: the tree of errors.py; ToolFailed only with `check`.
        """
        ...

    async def list_tools(self) -> list[Tool]:
        """Return all tools of the server."""
        ...

    async def read_resource(self, uri: str) -> list[ResourceContent]:
        """Read a resource, and return its parts.

        Raises:
            SessionError: it cannot be read.
        """
        ...

    def forget(self, session_id: str) -> None:
        """Drop all data about a closed session. Sends nothing."""
        ...


class OwnToolCaller(Protocol):
    """Calls Statehold's own tools about one session."""

    @property
    def id(self) -> str: ...

    async def call_own(self, tool: str, arguments: Mapping[str, Any] | None = None) -> JSON:
        """Call a tool about this session, and return its structured content."""
        ...


__all__ = ["Caller", "OwnToolCaller"]
