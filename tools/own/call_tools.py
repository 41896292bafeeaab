"""The toolset `calls`: calls that go on without their callers, for clients that declare no tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field

from ...sessions.calls.deadline import WaitProgress
from ...sessions.calls.receipts import replay
from ...sessions.calls.request import RecordedAnswer
from ...sessions.calls.task_records import TaskRecords
from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.registry import Registry
from ..definition import Arguments, NoArguments
from .own_tool import Outcome, OwnTool, ToolContext
from .session_tools import summary


class TaskArguments(Arguments):
    task_id: Annotated[
        str, Field(min_length=1, max_length=300, description="As still_running or call_list has it")
    ]


class ResultArguments(TaskArguments):
    wait_seconds: Annotated[float, Field(ge=0, le=600, description="Wait so long for it")] = 50.0


@dataclass(frozen=True, slots=True)
class OpenCallInfo:
    """A call that goes on. `status` is working, or input_required: then `question` is what it asks.

    `message` is the last that it reported.
    """

    task_id: str
    session_id: str
    session_name: str | None
    tool: str | None
    began_at: str
    status: str
    question: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class OpenCallList:
    """The calls that go on."""

    calls: list[OpenCallInfo]


@dataclass(frozen=True, slots=True)
class CancelledCall:
    """A call after call_cancel, with the status of its end; started: it goes on."""

    task_id: str
    status: str


class CallTools:
    """The tools of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._tasks = TaskRecords(registry)

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        if "calls" not in set(toolsets):
            return []
        return [
            OwnTool(
                "call_result",
                "Get the result of a call",
                "Wait for the end of a call that goes on, and get its result. While it runs, the error is still_running.",
                ResultArguments,
                dict,
                self._result,
                toolset="calls",
                read_only=True,
            ),
            OwnTool(
                "call_list",
                "List the calls that go on",
                "List the calls that go on in your sessions, and what they ask.",
                NoArguments,
                OpenCallList,
                self._list,
                toolset="calls",
                read_only=True,
            ),
            OwnTool(
                "call_cancel",
                "Cancel a call",
                "Cancel a call that goes on. It may have taken effect.",
                TaskArguments,
                CancelledCall,
                self._cancel,
                toolset="calls",
                idempotent=True,
            ),
        ]

    async def _result(self, context: ToolContext, arguments: ResultArguments) -> Outcome:
        task = _checked_id(context, arguments)
        wait = partial(self._tasks.wait, context.principal, task, arguments.wait_seconds)
        if context.caller is None:
            receipt, info = await wait()
        else:
            receipt, info = await WaitProgress(context.caller).run("Waiting for the call", wait)
        service, _ = await self._tasks.called(receipt)
        try:
            answer = RecordedAnswer.of(replay(receipt), summary(info), service)
        except SessionError as error:
            error.session_id = receipt.session_id
            raise
        return Outcome({}, summary(info), answer=answer)

    async def _list(self, context: ToolContext, arguments: NoArguments) -> Outcome:
        calls = await self._tasks.list(context.principal, context.pinned_session)
        return Outcome({"calls": calls})

    async def _cancel(self, context: ToolContext, arguments: TaskArguments) -> Outcome:
        task = _checked_id(context, arguments)
        status = await self._tasks.cancel(context.principal, task)
        return Outcome({"task_id": task, "status": status})


def _checked_id(context: ToolContext, arguments: TaskArguments) -> str:
    """Return the id of a task. Raises InvalidArgument if the caller is pinned to another session."""
    if context.pinned_session not in (None, arguments.task_id.partition(".")[0]):
        raise InvalidArgument("task_id: names no call of this session.")
    return arguments.task_id
