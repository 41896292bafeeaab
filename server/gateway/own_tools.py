"""Calls of our own tools, each run at most once per operation id.

The session keeps the outcome of a call (sessions/calls/receipts.py); this process does if the caller names it (repeats.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...sessions.calls.claims import Claim
from ...sessions.calls.receipts import Receipts
from ...sessions.calls.request import Request
from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ...sessions.services import CallResult
from ...tools.own.definition import Context, Outcome, OwnTool
from ...tools.own.sessions import summary
from ..sdk.caller import Caller
from .repeats import Repeats

_CONTENT = "structuredContent"


class OwnToolCalls:
    """Runs the calls of one process."""

    def __init__(self, registry: Registry, receipts: Receipts, repeats: Repeats) -> None:
        self._registry = registry
        self._receipts = receipts
        self.repeats = repeats

    async def run(
        self, tool: OwnTool, context: Context, arguments: JSON, caller: Caller
    ) -> Outcome:
        """Run a tool, or return the outcome of the earlier call with this id.

        Raises:
            SessionError: the tool failed; InvalidArgument for a malformed id, with any tool.
        """
        principal, operation = context.principal, caller.operation_id
        request = Request(
            principal, "", context.pinned or "", tool.name, dict(arguments), operation
        )
        if operation is None or caller.instance is not None or tool.read_only:
            return await self.repeats.run(request, caller, partial(tool.run, context, arguments))
        tool.parse_call(context, arguments)
        if not tool.of_session:
            return await self._making(tool, context, request)
        return await self._changing(tool, context, request)

    async def _changing(self, tool: OwnTool, context: Context, request: Request) -> Outcome:
        """Run a call of an existing session, which keeps its receipt."""
        arguments = dict(request.arguments)
        named = arguments.pop("session_id", None)
        ref: str = named if context.pinned is None else context.pinned
        found = await self._registry.info(context.principal, ref, context.namespace)
        # Two calls are the same, even if they name the session differently.
        request.service, request.session, request.arguments = "", found["session_id"], arguments
        if tool.frees_name and named != request.session:
            raise InvalidArgument(
                f"{tool.name} with an operation id needs the id of the session: its name may be another one's when the "
                "call is repeated.",
                session_id=request.session,
                recovery="Pass the session_id that session_create returned, or leave the operation id out.",
            )
        # Pinned by its id: a name could come to belong to another session meanwhile.
        bound, outcome = replace(context, pinned=request.session), list[Outcome]()

        async def work() -> CallResult:
            outcome.append(await tool.run(bound, arguments))
            return CallResult({_CONTENT: outcome[0].content}, notice=outcome[0].notice)

        try:
            result = await self._receipts.run(request, work)
        except SessionError as error:
            error.session_id = error.session_id or request.session
            raise
        return outcome[0] if outcome else await self._again(context, result, request.session)

    async def _making(self, tool: OwnTool, context: Context, request: Request) -> Outcome:
        """Run a call that creates a session, which keeps its receipt."""
        outcome: list[Outcome] = []

        async def work(claim: Claim) -> CallResult:
            given = dict(request.arguments)
            outcome.append(await tool.run(replace(context, claim=claim), given))
            return CallResult({_CONTENT: outcome[0].content}, notice=outcome[0].notice)

        result = await self._receipts.make(request, work)
        if outcome:
            return outcome[0]
        return await self._again(context, result, result.payload[_CONTENT]["session_id"])

    async def _again(self, context: Context, result: CallResult, session_id: str) -> Outcome:
        """Return the recorded result, with the session's present state."""
        try:
            session = summary(await self._registry.info(context.principal, session_id))
        except SessionError:
            session = None
        return Outcome(result.payload[_CONTENT], session, result.notice)


__all__ = ["OwnToolCalls"]
