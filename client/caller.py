"""The interface of a session to its state and its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON


class OwnToolCaller(Protocol):
    """Calls Statehold's own tools about one session."""

    @property
    def id(self) -> str: ...

    async def call_own(self, tool: str, arguments: Mapping[str, Any] | None = None) -> JSON:
        """Call a tool about this session, and return its structured content."""
        ...


__all__ = ["OwnToolCaller"]
