"""Tasks of an upstream on one connection: how often they are polled, and by whom they can be followed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from callers import UPSTREAMS, Caller, text_of, view
from support.fork_server import ForkServer
from support.listening import run_listening
from support.odd_http import Response, odd_server, page

from statehold.sessions.errors import OutcomeUnknown
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

DONE: dict[str, Any] = {
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "done"}]},
}


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


@pytest.mark.parametrize(("status", "calls"), [(429, 2), (401, 1)])
async def test_a_poll_that_is_refused_does_not_mean_that_the_call_did_not_run(
    tmp_path: Path, status: int, calls: int
) -> None:
    """A limited rate of polls is respected. Any other refusal leaves the outcome unknown."""
    polls = itertools.count(1)

    def answer(message: dict[str, Any]) -> Response | None:
        if message["method"] == "tools/call":
            result = {"resultType": "task", "taskId": "t", "status": "working"}
        elif message["method"] != "tasks/get":
            return None
        elif next(polls) == 1:
            return page(status)
        else:
            result = {"resultType": "complete", "taskId": "t", **DONE}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return Response(200, json.dumps(body).encode())

    with odd_server(era="modern", refuse=answer) as odd:
        config = UpstreamConfig(url=odd.url, era="modern", type="http")
        connection = await UpstreamService("odd", config, data=tmp_path).open(view(), None)
        try:
            with anyio.fail_after(15), raises_unless(status == 429):
                assert text_of(await connection.call("must", {}, Caller())) == "done"
        finally:
            await connection.aclose()
    assert odd.count_of("tasks/get") == calls
    assert odd.count_of("tasks/cancel") == (0 if status == 429 else 1)


def raises_unless(condition: bool) -> AbstractContextManager[object]:
    return nullcontext() if condition else pytest.raises(OutcomeUnknown)
