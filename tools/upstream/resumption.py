"""How a connection to an upstream outlives this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ...sessions.errors import OutcomeUnknown
from ...sessions.json_codec import JSON, dumps
from ...sessions.services import CallContext, Resumption, ToolResult
from .calls import ActiveCalls, UpstreamCall
from .tasks import UpstreamTask
from .transports.base import TransportResumption
from .transports.json_rpc import JsonRpcConnection

TOKEN_CHARACTERS: Final = 64 * 1024
"""The longest token; an upstream that introduces itself at greater length is opened again after a restart."""


class UpstreamResumption(Resumption):
    """The Resumption of one connection, over the one of its transport."""

    def __init__(
        self,
        rpc: JsonRpcConnection,
        transport: TransportResumption,
        calls: ActiveCalls,
        tasks: set[UpstreamTask],
        finish: Callable[[JSON, UpstreamCall], Awaitable[JSON]],
    ) -> None:
        """`finish` returns the result of a tool call by its answer. `calls` may ask, `tasks` are followed."""
        self._rpc = rpc
        self._transport = transport
        self._calls = calls
        self._tasks = tasks
        self._finish = finish

    @property
    def token(self) -> str | None:
        """The peer, the id of its session and the digest of its sandbox as JSON."""
        other_end = self._transport
        fields = {"peer": self._rpc.peer.to_json(), "session_id": other_end.session_id}
        fields["sandbox"] = other_end.sandbox
        token = dumps(fields)
        return token if len(token) <= TOKEN_CHARACTERS else None

    @property
    def keeps_calls(self) -> bool:
        return self._transport.keeps_calls

    def leave(self) -> None:
        # Otherwise aclose() would cancel them.
        self._tasks.clear()
        self._transport.leave()

    async def keep(self, seconds: float) -> None:
        await self._transport.keep(seconds)

    def was_sent(self, operation_id: str) -> bool | None:
        traffic = self._rpc.earlier_traffic
        if operation_id in traffic.calls.values():
            return True
        return False if traffic.has_all_calls else None

    def begin(self, operation_id: str, ctx: CallContext) -> Callable[[], Awaitable[ToolResult]]:
        calls = self._rpc.earlier_traffic.calls
        number = next(number for number, id in calls.items() if id == operation_id)
        call = UpstreamCall(number, "", ctx, self._rpc.spawn)
        self._calls.add(call)
        return partial(self._result, call)

    async def _result(self, call: UpstreamCall) -> ToolResult:
        try:
            answer = await self._rpc.interrupted_answer(call.number)
            result = ToolResult(await self._finish(answer, call))
            if result.input_required:
                # Its arguments, which the answers have to come with, were in the process that ended.
                raise OutcomeUnknown("The server ended while the call waited for an answer.")
            return result
        finally:
            self._calls.leave(call)

    def ask_again(self) -> None:
        self._rpc.ask_again()

    async def follow(self, task: str, ctx: CallContext) -> ToolResult:
        call = UpstreamCall(next(self._rpc.numbers), "", ctx, self._rpc.spawn)
        return ToolResult(await self._finish({"resultType": "task", "taskId": task}, call))
