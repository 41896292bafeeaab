"""Services whose tools run as tasks (SEP-2663): every client gets their results as those of other tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Running,
    Way,
    code_of,
    opened_session,
    text_of,
)
from support.listening import run_listening
from support.selection import matrix
from support.task_client import ANSWER, task_client
from support.waiting import until

PROGRAM = str(UPSTREAMS / "task_server.py")
NOTE = "Note from Statehold: all is well."
WORKING: JSON = {"status": "working"}
SCHEMA: JSON = {"type": "object", "properties": {"answer": {"type": "string"}}}
QUESTION: JSON = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Really?", "requestedSchema": SCHEMA},
}


def asking(*keys: str) -> JSON:
    return {"status": "input_required", "inputRequests": dict.fromkeys(keys, QUESTION)}


def completed(text: str = "done", **fields: Any) -> JSON:
    result = {"content": [{"type": "text", "text": text}], **fields}
    return {"status": "completed", "result": result}


@pytest.fixture(scope="module")
def upstream_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("upstream") / "tasks.jsonl"
    path.touch()
    return path


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer, upstream_log: Path) -> Generator[JSON]:
    options = ("--log", str(upstream_log))
    http = fork_server.command(PROGRAM, *options, "--transport", "http", "--era", "modern")
    with run_listening(http) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        yield {
            "services": {
                "pipe": fork_server.service(PROGRAM, *options, prefix="pipe_"),
                "other": fork_server.service(PROGRAM, prefix="other_"),
                "http": {"url": url, "prefix": "http_"},
                "brief": {"url": url, "prefix": "brief_", "call_seconds": 1},
                "older": fork_server.service(PROGRAM, prefix="older_", era="legacy"),
            }
        }


@pytest.fixture(params=matrix("http", "pipe"))
def upstream(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def asked() -> list[str]:
    """The questions that the user of a client got."""
    return []


@pytest.fixture
async def client(memory: Way, asked: list[str]) -> AsyncGenerator[Client]:
    async def elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": str(len(asked))})

    async with memory.connect(elicitation_callback=elicit) as connected:
        yield connected


@pytest.fixture
async def session(client: Client) -> str:
    return await opened_session(client)


def requests(log: Path) -> list[JSON]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def methods(upstream_log: Path) -> Any:
    """`methods()` are those of the requests about tasks that came during the test; of a call, its tool."""
    count = len(requests(upstream_log))
    return lambda: [request["tool"] for request in requests(upstream_log)[count:]]


async def call(client: Client, session: str, tool: str, *script: JSON) -> types.CallToolResult:
    with anyio.fail_after(20):
        return await client.call_tool(tool, {"session_id": session, "script": list(script)})


async def test_the_result_of_a_task_is_that_of_the_call(
    client: Client, session: str, upstream: str, upstream_log: Path
) -> None:
    reports: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message))

    half = {**WORKING, "statusMessage": "half of it"}
    most = {**WORKING, "statusMessage": NOTE}
    script = [WORKING, half, half, most, completed()]
    arguments = {"session_id": session, "script": script}
    with anyio.fail_after(20):
        result = await client.call_tool(f"{upstream}_must", arguments, progress_callback=report)
    assert text_of(result) == "done"
    assert not result.is_error
    messages = [message for _, message in reports if not str(message).startswith("Opening")]
    assert messages == ["half of it", f"[{upstream}] {NOTE}"]
    assert sorted(progress for progress, _ in reports) == [progress for progress, _ in reports]
    [*_, last] = requests(upstream_log)
    assert last["header"] == (last["task"] if upstream == "http" else None)


async def test_tools_are_listed_as_for_a_client_with_tasks(client: Client) -> None:
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"pipe_hidden", "http_hidden"} <= names
    assert "older_hidden" not in names


async def test_each_question_of_a_task_is_asked_once(
    client: Client, session: str, upstream: str, asked: list[str], methods: Any
) -> None:
    script = (WORKING, asking("a"), asking("a", "b"), {"status": "answers"})
    answers = json.loads(text_of(await call(client, session, f"{upstream}_may", *script)))
    assert asked == [f"{upstream} asks: Really?"] * 2
    assert {key: answer["content"] for key, answer in answers.items()} == {
        "a": {"answer": "1"},
        "b": {"answer": "2"},
    }
    assert methods().count("tasks/update") == 2


async def test_a_task_that_asks_a_client_who_cannot_answer_is_cancelled(
    memory: Way, upstream: str, methods: Any
) -> None:
    async with memory.connect() as client:
        session = await opened_session(client)
        waiting = call(client, session, f"{upstream}_must", WORKING, asking("a"))
        if memory.modern:
            with pytest.raises(MCPError, match="cannot answer elicitation/create"):
                await waiting
        else:
            assert code_of(await waiting) == "not_allowed"
    assert methods()[-1] == "tasks/cancel"


async def test_the_end_of_a_task_is_the_end_of_the_call(
    client: Client, session: str, methods: Any
) -> None:
    failed = {"status": "failed", "error": {"code": -32050, "message": NOTE, "data": 1}}
    with pytest.raises(MCPError) as raised:
        await call(client, session, "http_must", WORKING, failed)
    error = raised.value.error
    assert (error.code, error.message, error.data) == (-32050, f"[http] {NOTE}", 1)
    own_error = completed(NOTE, isError=True)
    result = await call(client, session, "http_must", WORKING, own_error)
    assert (result.is_error, text_of(result)) == (True, f"[http] {NOTE}")
    result = await call(client, session, "http_must", WORKING, {"status": "cancelled"})
    assert code_of(result) == "outcome_unknown"
    result = await call(
        client, session, "http_must", {**WORKING, "status": "completed"}, completed()
    )
    assert text_of(result) == "done"
    assert "tasks/cancel" not in methods()


async def test_a_task_that_has_ended_at_once_is_not_polled(
    client: Client, session: str, methods: Any
) -> None:
    assert text_of(await call(client, session, "http_must", completed())) == "done"
    assert methods() == ["must"]


@pytest.mark.parametrize(
    ("script", "code"),
    matrix(
        ([WORKING, {"refuse": types.INVALID_PARAMS}], "outcome_unknown"),
        ([WORKING, {"status": "completed"}], "service_unavailable"),
        ([{**WORKING, "taskId": None}], "service_unavailable"),
        ([WORKING, {"status": "failed", "error": {"code": "1"}}], "service_unavailable"),
        ([WORKING, {"status": "completed", "result": {}}], "service_unavailable"),
        ([WORKING, {"status": "resting"}], "service_unavailable"),
        ([WORKING, {**asking(), "inputRequests": {"a": 1}}], "service_unavailable"),
        quick=2,
    ),
)
async def test_a_malformed_or_unknown_task_is_an_error(
    client: Client, session: str, script: list[JSON], code: str
) -> None:
    result = await call(client, session, "http_must", *script)
    assert code_of(result) == code
    assert "Task t" not in text_of(result)


async def test_a_cancelled_call_cancels_its_task(
    client: Client, session: str, upstream: str, methods: Any
) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, client, session, f"{upstream}_must", WORKING)
            await until(lambda: "tasks/get" in methods())
            tasks.cancel_scope.cancel()
        await until(lambda: methods()[-1] == "tasks/cancel")


async def test_a_call_that_takes_too_long_cancels_its_task(
    client: Client, session: str, methods: Any
) -> None:
    result = await call(client, session, "brief_must", WORKING)
    assert code_of(result) == "call_timeout"
    assert methods()[-1] == "tasks/cancel"


async def test_the_end_of_a_session_cancels_its_tasks(
    client: Client, session: str, upstream: str, methods: Any
) -> None:
    results: list[types.CallToolResult] = []

    async def wait() -> None:
        results.append(await call(client, session, f"{upstream}_must", WORKING))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(lambda: "tasks/get" in methods())
            await client.call_tool("session_close", {"session_id": session, "force": True})
    assert code_of(results[0]) == "session_closed"
    assert methods()[-1] == "tasks/cancel"


async def test_equal_ids_of_two_services_are_two_tasks(client: Client, session: str) -> None:
    results: dict[str, str] = {}

    async def run(service: str) -> None:
        script = [WORKING, WORKING, completed(f"done by {service}")]
        results[service] = text_of(await call(client, session, f"{service}_must", *script))

    async with anyio.create_task_group() as tasks:
        for service in ("pipe", "other"):
            tasks.start_soon(run, service)
    assert results == {name: f"done by {name}" for name in ("pipe", "other")}


async def test_a_task_of_a_service_becomes_one_of_a_client_with_tasks(
    server: Running, upstream: str, methods: Any
) -> None:
    async with task_client(f"{server.url}/mcp") as client:
        session = await client.session()

        async def begin(*script: JSON) -> JSON:
            """Return the task of the client when it asks."""
            arguments = {"session_id": session, "script": [*script]}
            created = await client.call(f"{upstream}_must", arguments)
            assert created["taskId"].startswith(f"{session}.")
            task = await client.get(created["taskId"])
            assert task["status"] == "input_required"
            return task

        with anyio.fail_after(30):
            task = await begin(WORKING, asking("a"), {"status": "answers"})
            [key] = task["inputRequests"]
            params = {"taskId": task["taskId"], "inputResponses": {key: ANSWER}}
            await client.result("tasks/update", params)
            ended = await client.end_of(task["taskId"])
            assert json.loads(ended["result"]["content"][0]["text"]) == {"a": ANSWER}
            assert "tasks/cancel" not in methods()
            task = await begin(WORKING, asking("a"))
            await client.result("tasks/cancel", {"taskId": task["taskId"]})
            await until(lambda: methods()[-1] == "tasks/cancel")


async def test_a_question_that_its_service_withdraws_costs_no_result(
    server: Running, upstream: str, methods: Any
) -> None:
    async with task_client(f"{server.url}/mcp") as client:
        script = [WORKING, {**asking("a", "b"), "once": True}, WORKING, completed()]
        arguments = {"session_id": await client.session(), "script": script}
        with anyio.fail_after(20):
            created = await client.call(f"{upstream}_must", arguments)
            assert created["status"] == "input_required"
            assert len(created["inputRequests"]) == 2
            ended = await client.end_of(created["taskId"])
    assert ended["result"]["content"][0]["text"] == "done"
    assert not {"tasks/update", "tasks/cancel"} & set(methods())


async def test_the_error_of_an_older_era_without_tasks_names_the_remedy(
    client: Client, session: str
) -> None:
    with pytest.raises(MCPError, match=r'set era = "modern" in \[services.older\]'):
        await call(client, session, "older_must", completed())
