"""How a connection to an upstream outlives this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ...sessions.json_codec import JSON, dumps
from ...sessions.services import ToolResult
from .transports.base import TransportResumption
from .transports.json_rpc import JsonRpcConnection

TOKEN_CHARACTERS: Final = 64 * 1024
"""The longest token; an upstream that introduces itself at greater length is opened again after a restart."""


class UpstreamResumption:
    """The Resumption of one connection, see sessions/services.py, over the one of its transport."""

    def __init__(
        self,
        rpc: JsonRpcConnection,
        transport: TransportResumption,
        finish: Callable[[JSON], Awaitable[JSON]],
    ) -> None:
        """`finish` returns the result of a tool call by its answer."""
        self._rpc = rpc
        self._transport = transport
        self._finish = finish

    @property
    def token(self) -> str | None:
        """The peer and the id of its session as JSON."""
        fields = {"peer": self._rpc.peer.to_json(), "session_id": self._transport.session_id}
        token = dumps(fields)
        return token if len(token) <= TOKEN_CHARACTERS else None

    def leave(self) -> None:
        self._transport.leave()

    def was_sent(self, operation_id: str) -> bool | None:
        if operation_id in self._rpc.interrupted:
            return True
        return False if self._rpc.knows_all_calls else None

    async def interrupted_result(self, operation_id: str) -> ToolResult:
        return ToolResult(await self._finish(await self._rpc.interrupted_answer(operation_id)))
