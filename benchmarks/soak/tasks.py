"""Calls that outlive their requests while everything is killed: long ones, and ones that another client approves."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import anyio

from ..plan import QUICK, python
from ..servers import TaskClient, task_client
from .callers import GONE, REPEATS, REST_SECONDS
from .findings import Acknowledgement, Findings

JSON: TypeAlias = dict[str, Any]
TASK_CALLERS: Final = 2
TASK_SECONDS: Final = 120.0
"""The longest that a task may take after its client was told of it, recovery included."""
COMMAND_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 4.0
POLL_SECONDS: Final = 0.3
SECRET: Final = "a-text-that-the-store-must-seal"

CONFIG: Final = """\
[sealing]
keys = ["c2VhbGluZy1rZXktb2YtdGhlLXNvYWstYWxvbmUtMDE="]
[services.boxed]
command = {python}
args = {quick}
prefix = "boxed_"
approve = ["inc"]
[services.boxed.sandbox]
mode = "auto"
read = [{upstreams}]
write = [{truth}]
"""


def guarded_service(truth: Path) -> str:
    """Return the configuration of a sealed store, and of a service in a sandbox, one of whose tools needs approval."""
    program, *arguments = python("-S", "-E", QUICK, "--log", truth)
    quoted = {"python": program, "upstreams": str(QUICK.parent), "truth": str(truth)}
    return CONFIG.format(
        quick=json.dumps(arguments), **{name: json.dumps(text) for name, text in quoted.items()}
    )


@dataclass(slots=True)
class TaskCall:
    """A call that is sent until it is answered, and then, if the answer is a task, followed to its end."""

    operation: str
    tool: str
    arguments: JSON
    sent: int = 0
    task: str = ""
    began: float = field(default_factory=time.time)


class TaskCaller:
    """A client that declares tasks, in a session of its own."""

    def __init__(
        self,
        number: int,
        url: Callable[[], str],
        approve: Callable[[str], Sequence[str]],
        findings: Findings,
        random: Random,
    ) -> None:
        """`url` returns the address of a node, `approve` the command that approves a request."""
        self._tag = f"tasks{number}"
        self._url = url
        self._approve = approve
        self._findings = findings
        self._random = random
        self._numbers = itertools.count(1)
        self._session = ""
        self._pending: TaskCall | None = None
        self._stopping = False

    def stop(self) -> None:
        """Let the caller end after its current call."""
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping or self._pending is not None:
            try:
                async with task_client(self._url()) as client:
                    while not self._stopping or self._pending is not None:
                        await self._step(client)
                        await anyio.sleep(self._random.uniform(*REST_SECONDS))
            except Exception:
                # The node was killed or stopped.
                self._findings.calls["reconnects"] += 1
                self._give_up_late_one()
                await anyio.sleep(POLL_SECONDS)

    async def _step(self, client: TaskClient) -> None:
        if not self._session:
            self._session = await client.session()
            return
        call = self._pending = self._pending or self._next()
        if call.task:
            await self._follow(client, call)
        elif call.sent > REPEATS:
            self._pending = None
        else:
            await self._send(client, call)
        self._give_up_late_one()

    def _next(self) -> TaskCall:
        operation = f"{self._tag}-{next(self._numbers)}"
        arguments: JSON = {"operation": operation, "caller": self._tag, "of": self._session}
        if self._random.random() < 0.5:
            self._findings.asked.add(operation)
            return TaskCall(operation, "boxed_inc", {**arguments, "note": SECRET})
        seconds = self._random.uniform(0, LONGEST_SECONDS)
        slow = {**arguments, "seconds": seconds, "result": f"{SECRET} {operation}"}
        return TaskCall(operation, "boxed_slow", slow)

    async def _send(self, client: TaskClient, call: TaskCall) -> None:
        call.sent += 1
        arguments = {"session_id": self._session, **call.arguments}
        meta = {"statehold/operation_id": call.operation}
        result = await client.call(call.tool, arguments, meta)
        if result.get("resultType") == "task":
            self._findings.calls["tasks"] += 1
            call.task, call.began = result["taskId"], time.time()
        else:
            self._judge(call, result)

    async def _follow(self, client: TaskClient, call: TaskCall) -> None:
        answer = await client.send("tasks/get", {"taskId": call.task})
        if "error" in answer:
            await self._judge_refusal(client, call, str(answer["error"]))
            return
        found: JSON = answer["result"]
        status = found["status"]
        if status == "completed":
            self._judge(call, found["result"])
        elif status in ("failed", "cancelled"):
            # Its upstream was killed, or the call could not be repeated.
            self._findings.calls[f"tasks that {status}"] += 1
            self._pending = None
        elif request := re.search(r"apr_[\w-]+", found.get("statusMessage", "")):
            await self._approve_call(call, request[0])
        else:
            await anyio.sleep(POLL_SECONDS)

    async def _approve_call(self, call: TaskCall, request: str) -> None:
        """Approve a call by the command, which is another client. It is tried again while the task still waits."""
        self._findings.approved.add(call.operation)
        with anyio.move_on_after(COMMAND_SECONDS):
            done = await anyio.run_process(self._approve(request), check=False)
            self._findings.calls["approvals"] += done.returncode == 0

    def _judge(self, call: TaskCall, result: JSON) -> None:
        self._pending = None
        text = "\n".join(str(block.get("text", "")) for block in result["content"])
        if not result.get("isError"):
            self._findings.calls["ok"] += 1
            expected = call.arguments.get("result")
            if expected is not None and expected not in text.splitlines():
                self._findings.add("crossings", f"{call.operation}: {text[:200]!r}")
            acknowledgement = Acknowledgement(self._session, time.time())
            self._findings.acknowledged[call.operation] = acknowledgement
            return
        error: JSON = result.get("_meta", {}).get("statehold/error", {})
        code = str(error.get("code", "tool error"))
        self._findings.calls[code] += 1
        if code in (*GONE, "session_failed"):
            self._session = ""
        elif code == "service_unavailable":
            # This node may be stopping, and a kept connection leads to it until it has.
            raise ConnectionError(code)

    async def _judge_refusal(self, client: TaskClient, call: TaskCall, error: str) -> None:
        """A task that its client was told of is there as long as its session is."""
        info = await client.call("session_info", {"session_id": self._session})
        if info.get("isError"):
            self._session, self._pending = "", None
        elif "not found" in error:
            if not self._findings.explains(call.began):
                self._findings.add("lost acknowledgements", f"{call.task}: {error[:200]}")
            self._pending = None
        else:
            await anyio.sleep(POLL_SECONDS)

    def _give_up_late_one(self) -> None:
        call = self._pending
        if call is not None and time.time() - call.began > TASK_SECONDS:
            text = f"{call.operation}: {call.tool} {call.task or 'without a task'}"
            self._findings.add("calls without an answer", text)
            self._pending = None


__all__ = ["SECRET", "TASK_CALLERS", "TaskCaller", "guarded_service"]
