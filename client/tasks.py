"""Tasks: calls that the server goes on with, whether or not their caller waits."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import anyio

from .errors import OutcomeUnknown, RequestRefused, SessionError, ToolFailed, error_of_refusal
from .protocol.elicitation import ElicitationRound
from .protocol.retry import error_in
from .results import SESSION_META, CallResult, object_of

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from .options import CallOptions
    from .protocol.calls import ToolCalls

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
POLL_MS: Final = 1000
"""Milliseconds between two polls of a task that tells no interval."""


class TaskSession(Protocol):
    """The session of a task: it learns its own status from results and errors."""

    id: str

    def record_result(self, result: CallResult) -> None: ...

    def record_error(self, error: SessionError, tool: str = "") -> None: ...


class Task:
    """A call that the server goes on with, whether or not its caller waits. Dropping it changes nothing.

    result() waits for its end. The server keeps the result for 24 hours after that, over restarts too.
    """

    id: str
    """Leads to the same call from any program of the same user: `session.task(id)`."""

    def __init__(
        self,
        calls: ToolCalls,
        session: TaskSession,
        id: str,
        tool: str = "The call",
        ended: JSON | None = None,
    ) -> None:
        """`ended` is the last answer to `tasks/get` if the call has ended."""
        self.id = id
        self._tool = tool
        self._calls = calls
        self._session = session
        self._ended = ended

    def __repr__(self) -> str:
        return f"<Task {self.id}>"

    def __await__(self) -> Generator[Any, Any, CallResult]:
        """Wait for the result, as result() does."""
        return self.result().__await__()

    async def result(self) -> CallResult:
        """Wait for the end of the call, and return its result. May be called again, and by several at once.

        Questions of the tool go to the client's `elicitation_callback`; without one, it waits until another client answers.
        Cancelling the code that waits leaves the call alone: it goes on, and may be awaited again. cancel() ends it.

        Raises:
            ToolFailed: the tool answered with an error.
            OutcomeUnknown: the call was cancelled, or it is unknown whether it ran.
            RequestRefused: there is no such task, or no more.
            SessionError: everything else, as call() raises it.
        """
        try:
            result = self._outcome(await self._wait())
        except SessionError as error:
            self._session.record_error(error, self._tool)
            raise
        self._session.record_result(result)
        return result

    async def status(self) -> TaskStatus:
        """Ask the server for the status: with `input_required` it has asked, with `completed` it may have an error, too.

        Raises:
            RequestRefused: there is no such task, or no more.
        """
        return cast("TaskStatus", (await self._get())["status"])

    async def cancel(self) -> None:
        """Cancel the call at the server. It may have taken effect already; one that has ended is left as it is."""
        if self._ended is None:
            await self._send("tasks/cancel")

    async def _wait(self) -> JSON:
        """Poll until the call has ended, answer its questions meanwhile, and return its last fields."""
        callback = self._calls.requests.elicitation_callback
        questions = None if callback is None else ElicitationRound(callback)
        answered: set[str] = set()
        while (fields := await self._get())["status"] not in ENDED:
            requests: JSON = object_of(fields.get("inputRequests"))
            due = {key: asked for key, asked in requests.items() if key not in answered}
            if due and questions is not None:
                await self._send("tasks/update", inputResponses=await questions.answer_all(due))
                answered |= due.keys()
            else:
                await anyio.sleep(fields.get("pollIntervalMs", POLL_MS) / 1000)
        if questions is not None and questions.failure is not None:
            raise questions.failure
        return fields

    async def _get(self) -> JSON:
        fields = self._ended or await self._send("tasks/get")
        if fields["status"] in ENDED:
            self._ended = fields
        return fields

    async def _send(self, method: str, **params: Any) -> JSON:
        self._calls.require_open()
        requests = self._calls.requests
        meta: JSON = {**requests.tasks_meta, SESSION_META: True}
        try:
            return await requests.request(method, {"taskId": self.id, **params}, meta=meta)
        except RequestRefused as refusal:
            raise error_of_refusal(refusal) from None

    def _outcome(self, fields: JSON) -> CallResult:
        if fields["status"] == "cancelled":
            raise OutcomeUnknown("The call was cancelled; it may have taken effect.")
        if fields["status"] == "failed":
            error: JSON = fields["error"]
            raise RequestRefused(error["code"], error["message"], error.get("data"))
        result = CallResult(fields["result"])
        if result.is_error:
            raise error_in(result.payload) or ToolFailed(self._tool, result)
        return result


async def start_task(
    calls: ToolCalls,
    session: TaskSession,
    tool: str,
    arguments: Mapping[str, Any],
    run_id: str | None,
) -> Task:
    """Start a call under an id of ours, by which a repeat of a broken start is the same call. Raises as Session.start()."""
    id = secrets.token_hex(16)
    options: CallOptions = {"operation_id": id, "run_id": run_id, "check": False}
    try:
        result = await calls.call(session.id, tool, arguments, as_task=True, **options)
    except SessionError as error:
        session.record_error(error, tool)
        raise
    is_task = result.payload.get("resultType") == "task"
    ended = None if is_task else {"status": "completed", "result": result.payload}
    return Task(calls, session, f"{session.id}.{id}", tool, ended)


__all__ = ["Task", "TaskStatus", "start_task"]
