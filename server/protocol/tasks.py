"""Tasks of 2026-07-28 clients (SEP-2663): tool calls that outlive their requests.

A task is an operation whose caller left. Its id is the address of the receipt, the session and the operation id, so there is
no table of tasks: who may see a task, which node has it and when it ends follow from its session. A task is looked up by
its principal and session only, and the answer for one of another principal is that for one that does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ...sessions.calls.open_work import OpenWork
from ...sessions.calls.receipts import replay
from ...sessions.calls.request import RecordedAnswer
from ...sessions.calls.task_records import TaskRecords, task_id
from ...sessions.errors import (
    InvalidArgument,
    NodeUnavailable,
    OwnedByAnotherNode,
    RequestRefused,
    SessionError,
    SessionNotFound,
)
from ...sessions.journal.entries import STARTED
from ...sessions.json_codec import JSON
from ...sessions.records import NEVER, ReceiptRecord
from ...tools.own.session_tools import summary
from ...tools.upstream.negotiation import TASKS
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext, outbound_of
from ..sdk.caller import declares_tasks
from .error_translation import as_mcp_error, translate_errors
from .open_calls import (
    OpenCall,
    OpenCalls,
    describe_work,
    owner_of,
    parse_answers,
    task_fields,
)
from .request_checks import Requester
from .text_arguments import typed_params

METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
TASK_TOPIC: Final = "task:"
"""The bus of subscriptions knows a task as the resource with this prefix and the id."""
MAX_TASKS: Final = 1000
"""The maximum number of tasks of one `subscriptions/listen` request; further ones are not acknowledged."""


class TaskParams(types.RequestParams):
    """The parameters of all three methods. tasks/update reads the answers from the request."""

    task_id: str


Shape = Callable[[RequestContext, RecordedAnswer | SessionError, str, str], Awaitable[JSON]]
"""Returns the result that `tools/call` would have had, from the answer or error, the service and the tool."""


class Tasks:
    """The handlers of one server. It keeps nothing: running tasks are open calls, ended ones are receipts."""

    def __init__(
        self, gateway: Gateway, requester: Requester, open_calls: OpenCalls, shape: Shape
    ) -> None:
        self._gateway = gateway
        self._requester = requester
        self._open_calls = open_calls
        self._shape = shape
        self._records = TaskRecords(gateway.registry)

    def register(self, server: Server[Any]) -> None:
        handlers = (self._get, self._update, self._cancel)
        for method, handler in zip(METHODS, handlers, strict=True):
            server.add_request_handler(method, TaskParams, handler)

    async def read(self, ctx: RequestContext, task: str) -> JSON:
        """Return a task as `tasks/get` shows it.

        Raises:
            MCPError: the caller has no such task.
            OwnedByAnotherNode: another node has its session.
        """
        found, receipt, info = await self._find(ctx, task)
        if isinstance(found, OpenCall):
            return found.describe()
        assert receipt is not None
        if found is not None:
            return describe_work(found, task, receipt.started_at, _seconds_of(receipt))
        return await self._describe(ctx, receipt, info)

    async def known(self, ctx: RequestContext, tasks: object) -> list[str]:
        """Return those of the `taskIds` of a subscription whose changes this process can tell.

        Raises:
            MCPError: there are some, and the client does not declare tasks.
        """
        requested = cast("list[object]", tasks)[:MAX_TASKS] if isinstance(tasks, list) else []
        if requested:
            _require_declaration(ctx)
        found: list[str] = []
        for task in requested:
            with suppress(MCPError, OwnedByAnotherNode, NodeUnavailable):
                await self._find(ctx, str(task))
                found.append(str(task))
        return found

    async def _get(self, ctx: RequestContext, params: TaskParams) -> JSON:
        return {"resultType": "complete", **await self.read(ctx, params.task_id)}

    async def _update(self, ctx: RequestContext, params: TaskParams) -> JSON:
        found, _, _ = await self._find(ctx, params.task_id)
        if found is not None:
            try:
                # Those of a command are texts.
                answers = typed_params(dict(ctx.params or {}), None).get("inputResponses")
                found.answer(parse_answers(answers, found.questions))
            except InvalidArgument as error:
                raise as_mcp_error(error) from None
        return {"resultType": "complete"}

    async def _cancel(self, ctx: RequestContext, params: TaskParams) -> JSON:
        found, _, _ = await self._find(ctx, params.task_id)
        if found is not None:
            found.scope.cancel()
        return {"resultType": "complete"}

    async def _find(
        self, ctx: RequestContext, task: str
    ) -> tuple[OpenWork | None, ReceiptRecord | None, JSON]:
        """Return the work of a task that runs in this process, else None; its receipt and its session. Raises as read().

        A call that an earlier process began has both work and a receipt.
        """
        _require_declaration(ctx)
        principal = self._requester.principal(ctx)
        session, _, operation_id = task.partition(".")
        with translate_errors():
            pins, pin = self._gateway.pinned_sessions, self._requester.pin(ctx)
            if not operation_id or not await pins.allows(principal, pin, session):
                raise _unknown()
        running = self._gateway.registry.running_operations.get(session, operation_id)
        call = self._open_calls.task(owner_of(principal, session), operation_id)
        # A repeat waits for the call of the process before, which has its own work.
        if call is not None and (running is None or running.work is None):
            return call, None, {}
        with translate_errors():
            try:
                receipt, info = await self._records.find(principal, task)
            except SessionNotFound:
                raise _unknown() from None
        running = self._gateway.registry.running_operations.get(session, operation_id)
        work = None if running is None or receipt.status != STARTED else running.work
        return work, receipt, info

    async def _describe(self, ctx: RequestContext, receipt: ReceiptRecord, info: JSON) -> JSON:
        began_at, ended_at, seconds = receipt.started_at, receipt.ended_at, _seconds_of(receipt)
        task = task_id(receipt.session_id, receipt.operation_id)
        if receipt.status == STARTED:
            return task_fields(task, "working", began_at, began_at, seconds)
        fields = task_fields(task, "completed", began_at, ended_at or began_at, seconds)
        if receipt.status == "cancelled":
            return {**fields, "status": "cancelled"}
        outcome: RecordedAnswer | SessionError
        try:
            outcome = RecordedAnswer.of(replay(receipt), summary(info))
        except RequestRefused as error:
            refusal: JSON = {"code": error.rpc_code, "message": error.message}
            if error.data is not None:
                refusal["data"] = error.data
            message = error.message
            return {**fields, "status": "failed", "error": refusal, "statusMessage": message}
        except SessionError as error:
            outcome = error
            outcome.session_id = receipt.session_id
        called = await self._records.called(receipt)
        return {**fields, "result": await self._shape(ctx, outcome, *called)}


class TaskStream:
    """Stands in for the SDK's session of a stream that tells of tasks: on the bus, these are resources."""

    def __init__(self, ctx: RequestContext, tasks: Tasks) -> None:
        self._ctx = ctx
        self._tasks = tasks

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification; after the acknowledgement, all tasks as they are then."""
        if isinstance(notification, types.ResourceUpdatedNotification):
            uri = str(notification.params.uri)
            if uri.startswith(TASK_TOPIC):
                await self._send(uri.removeprefix(TASK_TOPIC), notification.params.meta)
                return
        if not isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            await self._ctx.session.send_notification(notification, related_request_id)
            return
        filters = notification.params.notifications
        uris = filters.resource_subscriptions or []
        ids = [uri.removeprefix(TASK_TOPIC) for uri in uris if uri.startswith(TASK_TOPIC)]
        fields = filters.model_dump(by_alias=True, exclude_none=True)
        others = [uri for uri in uris if not uri.startswith(TASK_TOPIC)]
        fields["resourceSubscriptions"] = others or None
        if ids:
            fields["taskIds"] = ids
        acknowledged = types.SubscriptionFilter.model_validate(fields)
        params = notification.params.model_copy(update={"notifications": acknowledged})
        await self._ctx.session.send_notification(
            types.SubscriptionsAcknowledgedNotification(params=params), related_request_id
        )
        for task in ids:
            await self._send(task, notification.params.meta)

    async def _send(self, task: str, meta: object) -> None:
        with suppress(MCPError, OwnedByAnotherNode, NodeUnavailable):
            fields = await self._tasks.read(self._ctx, task)
            await outbound_of(self._ctx).notify("notifications/tasks", {**fields, "_meta": meta})


def _require_declaration(ctx: RequestContext) -> None:
    if not declares_tasks(ctx):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="Missing required client capability: the client does not declare tasks",
            data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )


def _seconds_of(receipt: ReceiptRecord) -> float | None:
    expires_at = receipt.expires_at
    return None if expires_at is None or expires_at >= NEVER else expires_at - receipt.started_at


def _unknown() -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message="Task not found")
