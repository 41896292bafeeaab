"""Tasks of an upstream (SEP-2663): a tool call that it answers with the handle of a task is followed to its result.

No log and no error of ours has the id of a task, since a server may take it as a bearer token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from mcp_types import INTERNAL_ERROR

from ...sessions.concurrency import unwrap_group
from ...sessions.errors import CallWithdrawn, ConnectionLost, OutcomeUnknown, SessionError
from ...sessions.json_codec import JSON
from .calls import UpstreamCall
from .errors import UpstreamMisbehaved, UpstreamRefused
from .negotiation import require_answerable
from .results import attribute_report
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
        self,
        rpc: JsonRpcConnection,
        service: str,
        call: UpstreamCall,
        tasks: set[UpstreamTask],
        validate: Callable[[JSON], JSON],
    ) -> None:
        """`validate` is for the questions, as for results; see validate_result()."""
        self._rpc = rpc
        self._service = service
        self._call = call
        self._tasks = tasks
        self._validate = validate
        self._id: object = None
        self._message: object = None
        self._asked = dict[str, anyio.CancelScope]()
        """The waits for the caller's answers, also past ones, by the keys of the questions that were not withdrawn."""
        self._answered = anyio.Event()
        """Set when a question has come to its end, so that a poll is due."""
        self._failures = dict[str, SessionError]()
        """Why questions have no answer, until a poll shows whether they are still open."""
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def cancel(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    async def follow(self, handle: JSON) -> JSON:
        """Return the result. The caller gets the questions and status messages.

        A failed poll is repeated, unless the upstream refuses it. The task is cancelled with this, and if the caller does
        not answer.

        Raises:
            UpstreamRefused: The task failed, or asks what the caller did not declare to answer.
            NotAllowed: The caller does not answer.
            OutcomeUnknown: The connection ended, or the upstream cancelled the task or refuses requests about it.
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
        self._id, note = task.get("taskId"), self._call.ctx.note_upstream_task
        if not isinstance(self._id, str) or not self._id:
            raise UpstreamMisbehaved(self._service, "its task has no id")
        if not task.keys() & {"result", "error"}:
            # A handle has no outcome, even that of a task that has ended.
            task["status"] = "working"
        try:
            if note is not None:
                await note(self._id)
            async with anyio.create_task_group() as questions:
                task = await self._poll(task, questions)
                questions.cancel_scope.cancel()
        except BaseException as error:
            failure = unwrap_group(error)
            if not isinstance(failure, OutcomeUnknown | UpstreamMisbehaved):
                with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(SessionError):
                    await self._send("tasks/cancel")
            raise failure from None
        return self._result(task)

    async def _poll(self, task: JSON, questions: TaskGroup) -> JSON:
        """Poll the task until it has ended, and return it. Its questions are asked in `questions` meanwhile."""
        pause = FIRST_POLL
        while task.get("status") in ("working", "input_required"):
            self._pass_on(task, questions)
            value = task.get("pollIntervalMs")
            interval = value if isinstance(value, int | float) else USUAL_INTERVAL
            interval = min(max(interval, FIRST_POLL), LONGEST_INTERVAL)
            with anyio.move_on_after(min(pause, interval) / 1000):
                await self._answered.wait()
                self._answered, pause = anyio.Event(), FIRST_POLL
            failures, self._failures = self._failures, {}
            pause = min(2 * pause, LONGEST_INTERVAL)
            task = await self._send("tasks/get")
            for key in _requests_of(task).keys() & failures.keys():
                raise failures[key]
        return task

    async def _send(self, method: str, **fields: object) -> JSON:
        """Send a request about the task, and repeat it while its failure may pass.

        Raises:
            OutcomeUnknown: It is refused, or the connection ended. The call itself did run.
        """
        rpc, pause = self._rpc, FIRST_POLL
        params: JSON = {"taskId": self._id, **fields}
        params["_meta"] = rpc.peer.meta(self._call.ctx.capabilities)
        headers = rpc.peer.headers(method, params) if rpc.http else None
        while True:
            try:
                return await rpc.request(method, params, number=next(rpc.numbers), headers=headers)
            except (ConnectionLost, OutcomeUnknown, UpstreamRefused, HttpRefused) as error:
                if not self._may_pass(error):
                    words = error.message.replace(str(self._id), "its id")
                    message = f"{self._service} did not say how the call ended: {words}"
                    raise OutcomeUnknown(message) from None
                wait = max(pause, (error.retry_after or 0) * 1000)
            await anyio.sleep(min(wait, LONGEST_INTERVAL) / 1000)
            pause = min(2 * pause, LONGEST_INTERVAL)

    def _may_pass(self, error: SessionError) -> bool:
        """Whether the same request may succeed later. SEP-2663 lets a server limit the rate of polls."""
        if isinstance(error, HttpRefused):
            return error.refusal.status >= 500 or error.refusal.status in (408, 429)
        if isinstance(error, UpstreamRefused):
            return error.rpc_code == INTERNAL_ERROR
        return self._rpc.usable

    def _pass_on(self, task: JSON, questions: TaskGroup) -> None:
        """Report a new status message to the caller, put new questions to it, and withdraw those that are not there now."""
        message, requests, ctx = task.get("statusMessage"), _requests_of(task), self._call.ctx
        if isinstance(message, str) and message != self._message:
            self._message = message
            report: JSON = {"message": message}
            attribute_report(self._service, report)
            self._call.report_status(report["message"])
        for key in self._asked.keys() - requests.keys():
            self._asked[key].cancel()
        requests = {key: requests[key] for key in requests if key not in self._asked}
        if not requests:
            return
        question: JSON = {"resultType": "input_required", "inputRequests": requests}
        self._validate(question)
        if ctx.options.can_return_input_required:
            require_answerable(question, ctx.capabilities)
        for key, request in requests.items():
            self._asked[key] = anyio.CancelScope()
            questions.start_soon(self._ask, key, request)

    async def _ask(self, key: str, request: JSON) -> None:
        """Put a question to the caller, and send the answer unless the question was withdrawn."""
        answer: JSON | None = None
        try:
            with self._asked[key]:
                answer = await self._call.ctx.ask(request["method"], request.get("params") or {})
            if answer is None:
                # Another replica of the upstream may still ask it.
                del self._asked[key]
            else:
                await self._send("tasks/update", inputResponses={key: answer})
        except SessionError as error:
            self._failures[key] = error
        self._answered.set()

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


def _requests_of(task: JSON) -> JSON:
    value = task.get("inputRequests")
    return cast("JSON", value) if isinstance(value, dict) else {}
