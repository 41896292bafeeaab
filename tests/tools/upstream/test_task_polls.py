"""Tasks of an upstream on one connection: their polls, and their questions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from callers import UPSTREAMS, Caller, text_of, view
from support.fork_server import ForkServer
from support.listening import run_listening
from support.odd_http import OddServer, Response, odd_server, page, rpc_error
from support.selection import matrix

from statehold.sessions.errors import OutcomeUnknown
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

DONE: dict[str, Any] = {
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "done"}]},
}
WORKING: dict[str, Any] = {"status": "working"}
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


def asking(*keys: str) -> dict[str, Any]:
    params = {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object"}}
    question = {"method": "elicitation/create", "params": params}
    return {"status": "input_required", "inputRequests": dict.fromkeys(keys, question)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tasks.jsonl"


@pytest.fixture
def service(fork_server: ForkServer, log: Path, tmp_path: Path) -> Generator[UpstreamService]:
    program = str(UPSTREAMS / "task_server.py")
    options = ("--transport", "http", "--era", "modern", "--log", str(log))
    with run_listening(fork_server.command(program, *options)) as port:
        config = UpstreamConfig(url=f"http://127.0.0.1:{port}/mcp")
        yield UpstreamService("tasks", config, data=tmp_path / "data")


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_polls_begin_soon_and_end_at_the_interval_of_the_upstream(
    service: UpstreamService, log: Path
) -> None:
    """The first three come after 0.1, 0.2 and 0.4 seconds, although the upstream names 30 at first."""
    rare = {"status": "working", "pollIntervalMs": 30_000}
    often = {"status": "working", "pollIntervalMs": 1}
    script = [rare, rare, rare, {**rare, "pollIntervalMs": 300}, often, often, DONE]
    connection = await service.open(view(), None)
    try:
        with anyio.fail_after(15):
            result = await connection.call("must", {"script": script}, Caller())
    finally:
        await connection.aclose()
    assert text_of(result) == "done"
    times = [entry["time"] for entry in entries(log)]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    # The last ones would be shorter than the shortest interval.
    for pause, least in zip(pauses, (0.1, 0.2, 0.4, 0.3, 0.1, 0.1), strict=True):
        assert pause > least - 0.02


async def test_a_connection_that_is_closed_cancels_its_tasks(
    service: UpstreamService, log: Path
) -> None:
    is_noted = anyio.Event()

    async def note(task_id: str) -> None:
        is_noted.set()

    caller = Caller()
    caller.note_upstream_task = note
    connection = await service.open(view(), None)

    async def call() -> None:
        with pytest.raises(OutcomeUnknown):
            await connection.call("must", {"script": [{"status": "working"}]}, caller)

    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await is_noted.wait()
            await connection.aclose()
    assert entries(log)[-1]["tool"] == "tasks/cancel"


class OddTask:
    """The answers of an odd server about a task: one of `polls` to each `tasks/get`, the last one to all that follow."""

    def __init__(self, *polls: dict[str, Any] | Response) -> None:
        self.polls = polls
        self.update: dict[str, Any] | Response = {}
        """The answer to `tasks/update`."""

    def answer(self, message: dict[str, Any]) -> Response | None:
        match message["method"]:
            case "tools/call":
                found = {"resultType": "task", "taskId": "t", **WORKING}
            case "tasks/get":
                found, self.polls = self.polls[0], self.polls[1:] or self.polls
            case "tasks/update":
                found = self.update
            case _:
                return None
        if isinstance(found, Response):
            return found
        if "refuse" in found:
            return rpc_error(200, types.INTERNAL_ERROR, "No", message["id"])
        result = {"resultType": "complete", "taskId": "t", **found}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return Response(200, json.dumps(body).encode())


@contextmanager
def odd_tasks(*polls: dict[str, Any] | Response) -> Generator[tuple[OddServer, OddTask]]:
    task = OddTask(*polls)
    with odd_server(era="modern", refuse=task.answer) as odd:
        yield odd, task


async def call(odd: OddServer, folder: Path, caller: Caller | None = None) -> str:
    config = UpstreamConfig(url=odd.url, era="modern", type="http")
    connection = await UpstreamService("odd", config, data=folder).open(view(), None)
    try:
        with anyio.fail_after(15):
            return text_of(await connection.call("must", {}, caller or Caller()))
    finally:
        await connection.aclose()


@pytest.mark.parametrize(
    "poll",
    matrix(
        page(429),
        page(503, retry_after="0"),
        page(502),
        {"refuse": True},
        quick=2,
    ),
)
async def test_a_poll_that_fails_for_now_is_repeated(
    tmp_path: Path, poll: dict[str, Any] | Response
) -> None:
    with odd_tasks(WORKING, poll, poll, DONE) as (odd, _):
        assert await call(odd, tmp_path) == "done"
    assert odd.count_of("tasks/get") == 4
    assert odd.count_of("tasks/cancel") == 0


@pytest.mark.parametrize("way", matrix("nothing", "reset", "half", quick=1))
async def test_a_poll_without_an_answer_is_repeated(tmp_path: Path, way: str) -> None:
    with odd_tasks(WORKING, WORKING, DONE) as (odd, _):
        odd.tear = lambda message: (
            way if message["method"] == "tasks/get" and odd.count_of("tasks/get") < 3 else None
        )
        assert await call(odd, tmp_path) == "done"
    assert odd.count_of("tasks/cancel") == 0


@pytest.mark.parametrize("status", matrix(401, 403, 404, quick=1))
async def test_a_refused_poll_leaves_the_task_alone(tmp_path: Path, status: int) -> None:
    with odd_tasks(page(status)) as (odd, _), pytest.raises(OutcomeUnknown):
        await call(odd, tmp_path)
    assert odd.count_of("tasks/get") == 1
    assert odd.count_of("tasks/cancel") == 0


@pytest.mark.parametrize("later", [(DONE,), (WORKING, WORKING, DONE)])
async def test_a_question_that_a_task_no_longer_asks_is_withdrawn(
    tmp_path: Path, later: tuple[dict[str, Any], ...]
) -> None:
    withdrawn: list[bool] = []

    async def wait(method: str, params: dict[str, Any]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.append(odd.count_of("tasks/get") < 5)

    with odd_tasks(asking("a"), asking("a"), *later) as (odd, _):
        assert await call(odd, tmp_path, Caller(answer=wait, capabilities=FORMS)) == "done"
    assert withdrawn == [True]
    assert odd.count_of("tasks/update") == odd.count_of("tasks/cancel") == 0


async def test_a_question_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if len(caller.questions) == 1:
            await anyio.sleep_forever()
        task.polls = (DONE,)
        return {"action": "accept", "content": {}}

    caller = Caller(answer=answer, capabilities=FORMS)
    with odd_tasks(asking("a"), WORKING, asking("a")) as (odd, task):
        assert await call(odd, tmp_path, caller) == "done"
    assert len(caller.questions) == 2


async def test_questions_of_a_task_are_open_at_once(tmp_path: Path) -> None:
    caller = Caller(capabilities=FORMS)
    are_open = anyio.Event()

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if len(caller.questions) == 2:
            are_open.set()
        await are_open.wait()
        task.polls = (DONE,)
        return {"action": "accept", "content": {}}

    caller.answer = answer
    with odd_tasks(asking("a", "b")) as (odd, task):
        assert await call(odd, tmp_path, caller) == "done"


@pytest.mark.parametrize("has_ended", [True, False])
async def test_the_task_decides_after_a_refused_answer(tmp_path: Path, has_ended: bool) -> None:
    """An answer that comes too late costs no result. One that the server does not take ends the call."""

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        task.polls = (DONE,) if has_ended else (asking("a"),)
        return {"action": "accept", "content": {}}

    with odd_tasks(asking("a")) as (odd, task):
        task.update = page(404)
        with nullcontext() if has_ended else pytest.raises(OutcomeUnknown):
            assert await call(odd, tmp_path, Caller(answer=answer, capabilities=FORMS)) == "done"
    assert odd.count_of("tasks/update") == 1
    assert odd.count_of("tasks/cancel") == 0


async def test_an_answer_that_does_not_arrive_is_sent_again(tmp_path: Path) -> None:
    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {}}

    def refuse_once(message: dict[str, Any]) -> Response | None:
        if message["method"] != "tasks/update":
            return task.answer(message)
        if odd.count_of("tasks/update") == 1:
            return page(503)
        task.polls = (DONE,)
        return task.answer(message)

    with odd_tasks(asking("a")) as (odd, task):
        odd.refuse = refuse_once
        assert await call(odd, tmp_path, Caller(answer=answer, capabilities=FORMS)) == "done"
    assert odd.count_of("tasks/update") == 2
