"""Tasks of an upstream (SEP-2663): a tool call that it answers with the handle of a task is followed to its result.

No log and no error of ours has the id of a task, since a server may take it as a bearer token.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Final, cast

import anyio
import anyio.lowlevel

from ...sessions.errors import CallWithdrawn, ConnectionLost, OutcomeUnknown, SessionError
from ...sessions.json_codec import JSON
from .calls import UpstreamCall
from .errors import UpstreamMisbehaved, UpstreamRefused
from .negotiation import require_answerable
from .results import attribute_report, validate_result
from .transports.http_errors import HttpRefused
from .transports.json_rpc import JsonRpcConnection

FIRST_POLL: Final = 100
"""Milliseconds before the first poll. The pauses double up to the interval of the upstream."""
USUAL_INTERVAL: Final = 1_000
LONGEST_INTERVAL: Final = 30_000
CANCEL_SECONDS: Final = 2.0


async def cancel_tasks(tasks: Collection[UpstreamTask]) -> None:
    """Cancel tasks within a bound, before their connection is closed."""
    with anyio.move_on_after(2 * CANCEL_SECONDS, shield=True):
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task.cancel)


class UpstreamTask:
    """A task that runs the tool call `call`. It is one of `tasks` while it is followed."""

    def __init__(
        self, rpc: JsonRpcConnection, service: str, call: UpstreamCall, tasks: set[UpstreamTask]
    ) -> None:
        self._rpc = rpc
        self._service = service
        self._call = call
        self._tasks = tasks
        self._id: object = None
        self._message: object = None
        self._asked = set[str]()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def cancel(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    async def follow(self, handle: JSON) -> JSON:
        """Return the result. The caller gets the questions and status messages. The task is cancelled if this fails.

        Raises:
            UpstreamRefused: The task failed, or asks what the caller did not declare to answer.
            NotAllowed: The caller does not answer.
            OutcomeUnknown: The connection ended, or the upstream cancelled the task or no longer knows it.
            UpstreamMisbehaved: The task is malformed.
        """
        self._tasks.add(self)
        try:
            with self._scope:
                return await self._follow(handle)
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise OutcomeUnknown(f"The connection to {self._service} was closed during the call.")
        finally:
            self._tasks.discard(self)
            self._ended.set()

    async def _follow(self, task: JSON) -> JSON:
        self._id, note, pause = task.get("taskId"), self._call.ctx.note_upstream_task, FIRST_POLL
        if not isinstance(self._id, str) or not self._id:
            raise UpstreamMisbehaved(self._service, "its task has no id")
        if not task.keys() & {"result", "error"}:
            # A handle has no outcome, even that of a task that has ended.
            task["status"] = "working"
        try:
            if note is not None:
                await note(self._id)
            while task.get("status") in ("working", "input_required"):
                await self._pass_on(task)
                value = task.get("pollIntervalMs")
                interval = value if isinstance(value, int | float) else USUAL_INTERVAL
                interval = min(max(interval, FIRST_POLL), LONGEST_INTERVAL)
                await anyio.sleep(min(pause, interval) / 1000)
                pause = min(2 * pause, LONGEST_INTERVAL)
                task = await self._send("tasks/get")
        except BaseException:
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(SessionError):
                await self._send("tasks/cancel")
            raise
        return self._result(task)

    async def _send(self, method: str, **fields: object) -> JSON:
        """Send a request about the task. Raises OutcomeUnknown if it fails, since the call itself did run."""
        rpc, meta = self._rpc, self._rpc.peer.meta(self._call.ctx.capabilities)
        params: JSON = {"taskId": self._id, **fields, "_meta": meta}
        headers = rpc.peer.headers(method, params) if rpc.http else None
        try:
            return await rpc.request(method, params, number=next(rpc.numbers), headers=headers)
        except (ConnectionLost, UpstreamRefused, HttpRefused) as error:
            status = error.refusal.status if isinstance(error, HttpRefused) else None
            if method == "tasks/get" and status == HTTPStatus.TOO_MANY_REQUESTS:
                # SEP-2663 lets a server limit the rate of polls; the pauses grow.
                return {"status": "working", "pollIntervalMs": LONGEST_INTERVAL}
            words = error.message.replace(str(self._id), "its id")
            message = f"{self._service} did not say how the call ended: {words}"
            raise OutcomeUnknown(message) from None

    async def _pass_on(self, task: JSON) -> None:
        """Report a new status message to the caller, and put new questions to it."""
        message, value, ctx = task.get("statusMessage"), task.get("inputRequests"), self._call.ctx
        if isinstance(message, str) and message != self._message:
            self._message = message
            report: JSON = {"message": message}
            attribute_report(self._service, report)
            self._call.report_status(report["message"])
        requests = cast("JSON", value) if isinstance(value, dict) else {}
        requests = {key: requests[key] for key in requests if key not in self._asked}
        if not requests:
            return
        question: JSON = {"resultType": "input_required", "inputRequests": requests}
        validate_result(question, modern=True, service=self._service, tool=True)
        if ctx.options.can_return_input_required:
            require_answerable(question, ctx.capabilities)
        for key, request in requests.items():
            self._asked.add(key)
            answer = await ctx.ask(request["method"], request.get("params") or {})
            await self._send("tasks/update", inputResponses={key: answer})

    def _result(self, task: JSON) -> JSON:
        """Return the result of a task that has ended, or raise its error."""
        match task:
            case {"status": "completed", "result": {**result}}:
                return {**result, "resultType": "complete"}
            case {"status": "failed", "error": {"code": int(code), "message": str(text), **rest}}:
                raise UpstreamRefused(code, text, rest.get("data"))
            case {"status": "cancelled"}:
                raise CallWithdrawn(f"The server of {self._service} cancelled the call.")
            case _:
                raise UpstreamMisbehaved(self._service, "its task is malformed")
