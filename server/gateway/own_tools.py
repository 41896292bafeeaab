"""Calls of our own tools, each run at most once per operation id; see sessions/calls/idempotency.py.

The receipt of a call is stored with its session. If the caller names this process as the origin of the id, the receipt is
kept in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio

from ...sessions.calls.idempotency import IdempotencyGuard, Receipts, ToolReceipts
from ...sessions.calls.receipt_memory import ReceiptMemory
from ...sessions.calls.receipts import (
    Operation,
    creation_id,
    digest_of,
    validate_operation_id,
)
from ...sessions.errors import (
    ConnectionLost,
    InvalidArgument,
    OwnedByAnotherNode,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionNotFound,
    StateConflict,
)
from ...sessions.json_codec import JSON
from ...sessions.owned_map import OwnedMap
from ...sessions.registry import Registry
from ...sessions.services import ToolResult
from ...tools.own.own_tool import Outcome, OwnTool, ToolContext
from ...tools.own.session_tools import summary
from ..sdk.caller import OwnMeta

MAX_FORWARDED_IDS = 10_000
"""Operation ids of forwarded calls that are remembered."""

_CONTENT = "structuredContent"
_SESSION = "session_id"


class AnotherProcess(ConnectionLost):
    """Raised when a call names another process than the one that it reached; it was not run."""

    def __init__(self, instance: str) -> None:
        super().__init__(
            "Another process answers here now, and the call was not run.",
            recovery=f"Send the call again to this one: {instance}.",
        )
        self.instance = instance


class OwnToolCalls:
    """Runs the calls of one process."""

    def __init__(self, registry: Registry, guard: IdempotencyGuard) -> None:
        self._registry = registry
        self._guard = guard
        core = registry.core
        self.instance = core.node.id
        """The name of this process, unlike that of any other."""
        self._memory = ReceiptMemory(core.clock, core.policy, self.instance)
        self._forwarded_ids = OwnedMap[tuple[str, str], bool](MAX_FORWARDED_IDS)
        """Principal and operation id of calls that another node ran. It stored their receipts with their sessions."""

    async def run(
        self, tool: OwnTool, context: ToolContext, arguments: JSON, meta: OwnMeta
    ) -> Outcome:
        """Run a tool, or return the outcome of the earlier call with this id.

        A call with an id runs to its end when its caller disconnects, since the caller may send it again.

        Raises:
            AnotherProcess: the call names another process than this, and was not run.
            SessionError: the tool failed; InvalidArgument for a malformed id, with any tool.
        """
        requested_id = meta.operation_id
        if requested_id is None or tool.read_only:
            return await tool.run(context, arguments)
        operation_id = validate_operation_id(requested_id)
        principal = context.principal
        if meta.instance is not None:
            if meta.instance != self.instance and not meta.is_repeat:
                # Otherwise a repeat that reaches the named process would run there, too.
                raise AnotherProcess(self.instance)
            digest = digest_of(context.pinned_session or "", tool.name, arguments)
            operation = Operation(
                principal.key, operation_id, digest, meta.instance, meta.is_repeat
            )
            if not self._forwarded_ids.get((principal.key, operation_id)):
                return await self._run_here(tool, context, arguments, operation)
        tool.parse_call(context, arguments)
        receipts = ToolReceipts(self._registry, principal, is_shared=context.is_shared)
        if not tool.takes_session:
            digest = digest_of("", tool.name, arguments)
            operation = Operation(principal.key, creation_id(operation_id), digest)
            context = replace(context, operation=operation)
            return await self._run_once(tool, context, arguments, operation, receipts)
        session_id, arguments = await self._session(tool, context, arguments)
        # Without the session: a repeat may name it differently, by its id or its name.
        digest = digest_of("", tool.name, arguments)
        operation = Operation(session_id, operation_id, digest)
        # Pinned by its id: meanwhile the name could pass to another session.
        context = replace(context, pinned_session=session_id)
        try:
            return await self._run_once(tool, context, arguments, operation, receipts)
        except SessionError as error:
            error.session_id = error.session_id or session_id
            raise

    async def _run_here(
        self, tool: OwnTool, context: ToolContext, arguments: JSON, operation: Operation
    ) -> Outcome:
        """Run a call whose receipt is kept in memory, unless another node owns its session: then the owner stores it."""
        try:
            return await self._run_once(tool, context, arguments, operation, self._memory)
        except OwnedByAnotherNode:
            self._forwarded_ids.put(operation.scope, (operation.scope, operation.id), True)
            raise

    async def _session(
        self, tool: OwnTool, context: ToolContext, arguments: JSON
    ) -> tuple[str, JSON]:
        """Return the id of the session that a call names, and the other arguments."""
        others = {key: value for key, value in arguments.items() if key != _SESSION}
        session_ref: Any = arguments.get(_SESSION)
        ref: str = session_ref if context.pinned_session is None else context.pinned_session
        info = await self._registry.info(context.principal, ref, context.namespace)
        session_id: str = info["session_id"]
        if tool.frees_name and session_ref != session_id:
            raise InvalidArgument(
                f"{tool.name} with an operation id needs the id of the session: its name may be another one's when the "
                "call is repeated.",
                session_id=session_id,
                recovery="Pass the session_id that session_create returned, or leave the operation id out.",
            )
        return session_id, others

    async def _run_once(
        self,
        tool: OwnTool,
        context: ToolContext,
        arguments: JSON,
        operation: Operation,
        receipts: Receipts,
    ) -> Outcome:
        async with self._guard.once(operation, receipts) as recorded_result:
            if recorded_result is None:
                return await self._run(tool, context, arguments, operation)
            operation.result = recorded_result
        payload = recorded_result.payload
        session = await self._summary(context, payload[_SESSION])
        return Outcome(payload[_CONTENT], session, recorded_result.notice)

    async def _summary(self, context: ToolContext, session_id: str | None) -> JSON | None:
        """Return the present state of the session of a recorded result."""
        if session_id is None:
            return None
        session = self._registry.live(context.principal, session_id)
        if session is not None:
            return session.summary()
        try:
            return summary(await self._registry.info(context.principal, session_id))
        except SessionError:
            return None

    async def _run(
        self, tool: OwnTool, context: ToolContext, arguments: JSON, operation: Operation
    ) -> Outcome:
        operation.effective = True
        try:
            with anyio.CancelScope(shield=True):
                outcome = await tool.run(context, dict(arguments))
                session_id = None if outcome.session is None else outcome.session["id"]
                payload = {_CONTENT: outcome.content, _SESSION: session_id}
                operation.result = ToolResult(payload, notice=outcome.notice)
                return outcome
        except SessionError as error:
            operation.effective = not _changed_nothing(error)
            raise
        raise AssertionError("unreachable: a shield is never cancelled")


def _changed_nothing(error: SessionError) -> bool:
    """Whether the failed call changed nothing and may succeed later, so that its caller may send it again."""
    if isinstance(error, StateConflict):
        return False
    absent = SessionNotFound, SessionExpired, SessionClosed, SessionFailed
    return error.retryable or isinstance(error, absent)
