"""A server that is killed and started again: the processes of its sessions outlive it, and nothing of them is lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import psutil
import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Running,
    Way,
    kill,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.process_exit import until_gone
from support.selection import matrix
from support.waiting import until

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("fork_server")]


class Restarts:
    """A server of one data folder that is killed and started again, with one session of a counter."""

    def __init__(self, folder: Path, *, options: list[str], settings: JSON | None = None) -> None:
        self.log = folder / "calls.jsonl"
        self.data = folder / "data"
        self.config = folder / "statehold.toml"
        self.services = {"counter": service("counter", "--log", str(self.log), *options)}
        self.write({"services": self.services, **(settings or {})})

    def write(self, settings: JSON) -> None:
        self.config.write_text(toml(settings))

    def way(self, server: Running) -> Way:
        return Way("http", "modern", self.config, self.data, url=server.url)

    def serve(self) -> Any:
        return serving(self.config, self.data)

    def runs(self, tool: str) -> int:
        """Count the runs of a tool in the log of the upstream."""
        if not self.log.exists():
            return 0
        lines = map(json.loads, self.log.read_text().splitlines())
        return sum(line.get("tool") == tool and "event" not in line for line in lines)

    async def arrived(self, tool: str) -> None:
        await until(lambda: self.runs(tool))


async def count(client: Client, session: str) -> JSON:
    return structured(await client.call_tool("inc", {"session_id": session}))


def notes(result: types.CallToolResult) -> list[str]:
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    return [text for text in texts if "Note from Statehold" in text]


@pytest.fixture(autouse=True)
def no_keeper_is_left(tmp_path: Path) -> Generator[None]:
    yield
    for pid in keepers(tmp_path / "data"):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(params=matrix("both", "legacy"))
def restarts(request: pytest.FixtureRequest, tmp_path: Path) -> Restarts:
    return Restarts(tmp_path, options=["--era", request.param])


async def killed_during(
    restarts: Restarts, tool: str, arguments: JSON, *, operation: str, counts: int = 3
) -> str:
    """Count in a new session, kill the server while a call with an operation id runs, and return the session."""
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            session = await opened_session(client)
            for _ in range(counts):
                await count(client, session)

            async def call() -> None:
                # The kill breaks the transport of this client as well.
                with suppress(Exception):
                    async with restarts.way(server).connect() as caller:
                        own_arguments = {**arguments, "session_id": session}
                        meta: Any = {"statehold/operation_id": operation}
                        await caller.call_tool(tool, own_arguments, meta=meta)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await restarts.arrived(tool)
                kill(server)
                tasks.cancel_scope.cancel()
    return session


@pytest.mark.parametrize("kills", matrix(1, 2))
async def test_counters_go_on_without_a_note(restarts: Restarts, kills: int) -> None:
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            session = await opened_session(client)
            first = [await count(client, session) for _ in range(3)][-1]
            kill(server)
    for expected in range(4, 4 + kills):
        with restarts.serve() as server:
            async with restarts.way(server).connect() as client:
                result = await client.call_tool("inc", {"session_id": session})
                assert structured(result) == {**first, "count": expected}
                assert notes(result) == []
                info = structured(await client.call_tool("session_info", {"session_id": session}))
                assert (info["status"], info["generation"]) == ("idle", 1)
                kill(server)


@pytest.mark.thorough
async def test_the_subscriptions_of_a_killed_server_end_with_their_first_message(
    tmp_path: Path,
) -> None:
    restarts = Restarts(tmp_path, options=[])
    with restarts.serve() as server:
        async with Client(f"{server.url}/s/one/mcp") as client:
            await client.call_tool("inc", {})
            kill(server)
    events: list[object] = []
    with restarts.serve() as server:
        async with (
            Client(f"{server.url}/s/one/mcp") as client,
            client.listen(resources_list_changed=True) as changes,
            anyio.create_task_group() as tasks,
        ):

            async def read() -> None:
                while True:
                    events.append(await anext(changes))

            tasks.start_soon(read)
            await client.call_tool("inc", {})
            for total in range(2, 7):
                await client.call_tool("grow", {"what": "resources"})
                await until(lambda expected=total: len(events) >= expected)
            # One more of each former subscription, or two if its end comes after the next change.
            assert len(events) in (6, 7)
            tasks.cancel_scope.cancel()


@pytest.mark.thorough
async def test_a_repeat_gets_the_answer_to_a_call_that_ran_while_the_server_was_killed(
    restarts: Restarts,
) -> None:
    session = await killed_during(restarts, "slow", {"seconds": 1}, operation="op")
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            arguments: JSON = {"session_id": session, "seconds": 1}
            meta: Any = {"statehold/operation_id": "op"}
            results = [await client.call_tool("slow", arguments, meta=meta) for _ in range(2)]
            assert [result.is_error for result in results] == [False, False]
            assert (await count(client, session))["count"] == 4
    assert restarts.runs("slow") == 1


@pytest.mark.thorough
async def test_a_repeat_gets_the_result_of_a_task_that_began_when_the_server_was_killed(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    restarts = Restarts(tmp_path, options=[])
    program = str(UPSTREAMS / "task_server.py")
    tasks = fork_server.service(program, "--log", str(restarts.log))
    restarts.write({"services": {**restarts.services, "tasks": tasks}})
    result = {"content": [{"type": "text", "text": "done"}]}
    script = [*[{"status": "working"}] * 2, {"status": "completed", "result": result}]
    session = await killed_during(restarts, "must", {"script": script}, operation="op")
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            arguments: JSON = {"session_id": session, "script": script}
            meta: Any = {"statehold/operation_id": "op"}
            repeat = await client.call_tool("must", arguments, meta=meta)
    assert (repeat.is_error, text_of(repeat)) == (False, "done")
    assert restarts.runs("must") == 1


@pytest.mark.thorough
async def test_an_open_question_is_answered_as_cancelled(tmp_path: Path) -> None:
    restarts = Restarts(tmp_path, options=["--era", "legacy"])
    question_arrived = anyio.Event()

    async def hang(*_: Any) -> types.ElicitResult:
        question_arrived.set()
        await anyio.sleep_forever()
        raise AssertionError

    arguments: JSON = {"question": "who?"}
    meta: Any = {"statehold/operation_id": "op"}
    with restarts.serve() as server:
        async with restarts.way(server).connect(elicitation_callback=hang) as client:
            session = await opened_session(client)
            arguments["session_id"] = session
            # Its answer waits until the connection is recorded.
            await count(client, session)

            async def ask() -> None:
                with suppress(Exception):
                    await client.call_tool("ask", arguments, meta=meta)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                with anyio.fail_after(20):
                    await question_arrived.wait()
                kill(server)
                tasks.cancel_scope.cancel()
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            result = await client.call_tool("ask", arguments, meta=meta)
            assert "cancel" in str(result.content)
    assert restarts.runs("ask") == 1


@pytest.mark.thorough
async def test_a_process_that_ended_meanwhile_is_a_loss_with_its_cause(tmp_path: Path) -> None:
    restarts = Restarts(tmp_path, options=[])
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            session = await opened_session(client)
            pid = (await count(client, session))["pid"]
            kill(server)
    os.kill(pid, signal.SIGKILL)
    await until_gone(pid)
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            result = await client.call_tool("inc", {"session_id": session})
            assert structured(result)["count"] == 1
            [note] = notes(result)
            assert "SIGKILL" in note
            assert "generation 1 to 2" in note


@pytest.mark.thorough
async def test_a_stop_ends_the_processes_and_the_keeper(tmp_path: Path) -> None:
    restarts = Restarts(tmp_path, options=[])
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            session = await opened_session(client)
            pid = (await count(client, session))["pid"]
            [keeper] = keepers(restarts.data)
    await until_gone(pid, keeper)


def keepers(data: Path) -> list[int]:
    """Return the pids of the keepers of a data folder."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(data) in (process.info["cmdline"] or ()) and "-S" in process.info["cmdline"]
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "change"),
    [
        pytest.param({}, {"env": {"SETTING": "other"}}, id="with other settings of the service"),
        pytest.param({"keeper": {"linger_seconds": 0}}, {}, id="without a keeper"),
    ],
)
async def test_a_process_that_is_not_taken_up_is_a_loss(
    tmp_path: Path, settings: JSON, change: JSON
) -> None:
    restarts = Restarts(tmp_path, options=[], settings=settings)
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            session = await opened_session(client)
            await count(client, session)
            kill(server)
    restarts.services["counter"] |= change
    restarts.write({"services": restarts.services, **settings})
    with restarts.serve() as server:
        async with restarts.way(server).connect() as client:
            result = await client.call_tool("inc", {"session_id": session})
            assert structured(result)["count"] == 1
            assert len(notes(result)) == 1
