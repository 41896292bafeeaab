"""A client keeps its connection when the background server ends: its program goes on with the next server."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from subprocess import CompletedProcess
from typing import Any, Final

import anyio
import mcp_types as types
import pytest
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from support.gateway_process import (
    JSON,
    STATEHOLD,
    code_of,
    meta_of,
    service,
    structured,
    text_of,
    toml,
)
from support.piped import HELLO, Pipes, tool_call
from support.process_exit import until_gone
from support.selection import matrix
from support.shared_clients import SharedClients
from support.waiting import until

from statehold.server.exit_codes import OK, USAGE
from statehold.server.protocol.results import ERROR_META
from statehold.server.shared import conversation
from statehold.server.shared.request import VERB
from statehold.server.sockets.address import claim_socket, create_private_folder, remove_socket
from statehold.server.sockets.command import VERB as COMMAND
from statehold.server.sockets.processes import NODES, PROCESS
from statehold.sessions.errors import ShuttingDown

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
PIN: Final = ("--session", "s")
ERAS: Final = matrix("legacy", "auto")
WITH_LISTS: Final[JSON] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}, "prompts": {"listChanged": True}},
}


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {
        "server": {"linger_seconds": 600},
        "timeouts": {"close_grace": 10},
        "services": {
            "counter": service("counter"),
            "asking": service("asking", "--era", "legacy", prefix="q_", connect="lazy"),
        },
    }


def pid_of(shared: SharedClients) -> int | None:
    status = shared.status()
    return None if status is None else status["pid"]


async def kill(shared: SharedClients) -> int:
    """Kill the server, and return its pid once it is dead."""
    pid = pid_of(shared)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # Its command line is gone before its sockets are closed. A client may start the next server at once.
    await until_gone(pid)
    return pid


async def list_all(pipes: Pipes) -> None:
    """Ask for the lists of tools and prompts."""
    for number, method in ((100, "tools/list"), (101, "prompts/list")):
        await pipes.send({"id": number, "method": method})
        assert "result" in await pipes.answer(number)


async def expect_count(client: Any, count: int) -> None:
    assert await inc(client) == count


async def inc(client: Any) -> int:
    return structured(await client.call_tool("inc", {}))["count"]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_goes_on_after_a_kill_in_the_middle_of_a_call(
    shared: SharedClients, mode: str
) -> None:
    began = anyio.Event()
    codes: list[str] = []

    async def note(*_: object) -> None:
        began.set()

    async def call(client: Any) -> None:
        arguments = {"seconds": 60, "steps": 600}
        codes.append(code_of(await client.call_tool("slow", arguments, progress_callback=note)))

    async with shared.connect(*PIN, mode=mode) as client:
        with anyio.fail_after(90):
            assert await inc(client) == 1
            before = pid_of(shared)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, client)
                await began.wait()
                await kill(shared)
            assert codes == ["outcome_unknown"]
            assert await inc(client) == 2
            assert {tool.name for tool in (await client.list_tools()).tools} >= {"inc", "slow"}
            assert pid_of(shared) not in (None, before)


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "end"), [("legacy", "SIGTERM"), ("auto", "stop")])
async def test_an_orderly_end_lets_calls_finish_and_the_next_call_starts_a_server(
    shared: SharedClients, mode: str, end: str
) -> None:
    began = anyio.Event()

    async def note(*_: object) -> None:
        began.set()

    async def call(client: Any) -> None:
        arguments = {"seconds": 2, "steps": 20}
        result = await client.call_tool("slow", arguments, progress_callback=note)
        assert text_of(result) == "done"

    async with shared.connect(*PIN, mode=mode) as client:
        with anyio.fail_after(90):
            assert await inc(client) == 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, client)
                await began.wait()
                pid = pid_of(shared)
                assert pid is not None
                if end == "SIGTERM":
                    os.kill(pid, signal.SIGTERM)
                    await anyio.to_thread.run_sync(shared.wait_ended)
                else:
                    await anyio.to_thread.run_sync(shared.stop)
            assert shared.servers() == []
            result = await client.call_tool("inc", {})
            # The stop saved the session and ended its processes.
            assert structured(result)["count"] == 1
            assert "statehold/notice" in meta_of(result)


@pytest.mark.thorough
async def test_a_stopped_server_stays_away_until_a_client_needs_it(
    shared: SharedClients, settings: JSON
) -> None:
    async with shared.piped(*PIN) as one, shared.piped(*PIN) as other:
        await list_all(other)
        await anyio.to_thread.run_sync(shared.stop)
        assert shared.servers() == []
        # The next server has the settings of now.
        shared.config.write_text(toml({**settings, "toolsets": ["core", "state"]}))
        assert (await one.tool(1, "state_update", values={"n": 1}))["structuredContent"]
        # The program that needs nothing finds it.
        with anyio.fail_after(90):
            assert (await other.line())["method"] == "notifications/tools/list_changed"
        state = (await other.tool(1, "state_get"))["structuredContent"]
        assert state["value"] == {"n": 1}
        assert len(shared.servers()) == 1


@pytest.mark.thorough
async def test_racing_programs_start_one_server(shared: SharedClients) -> None:
    counts: list[int] = []

    async def count(pipes: Pipes) -> None:
        counts.append((await pipes.tool(1, "inc"))["structuredContent"]["count"])

    async with (
        shared.piped(*PIN) as one,
        shared.piped(*PIN) as two,
        shared.piped(*PIN) as three,
    ):
        for _ in range(3):
            await kill(shared)
            async with anyio.create_task_group() as tasks:
                for pipes in (one, two, three):
                    tasks.start_soon(count, pipes)
            assert len(shared.servers()) == 1
    assert sorted(counts) == list(range(1, 10))


@pytest.mark.thorough
async def test_lists_in_flight_are_asked_of_the_next_server(shared: SharedClients) -> None:
    """The first server has read every request: one that no server has read goes to the next one."""
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            server = await accept()
            await pipes.send({"id": 1, "method": "tools/list"}, {"id": 2, "method": "ping"})
            await pipes.send(
                tool_call(3, "inc"), {"id": 4, "method": "resources/read", "params": {}}
            )
            assert [(await server.line())["id"] for _ in range(4)] == [1, 2, 3, 4]
            server.writer.close()
            server = await accept()
            for number in (1, 2):
                assert (await server.line())["id"] == number
                await server.send({"jsonrpc": "2.0", "id": number, "result": {"number": number}})
            answers = {(answer := await pipes.line())["id"]: answer for _ in range(4)}
        assert [answers[number]["result"] for number in (1, 2)] == [{"number": 1}, {"number": 2}]
        assert answers[3]["result"]["_meta"]["statehold/error"]["code"] == "outcome_unknown"
        assert answers[4]["error"]["data"]["code"] == "outcome_unknown"
        server.writer.close()


@pytest.mark.thorough
async def test_a_handshake_in_flight_is_made_with_the_next_server(shared: SharedClients) -> None:
    async with shared.piped(*PIN, hello=False) as pipes:
        pid = await until(partial(pid_of, shared))
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await pipes.send(*HELLO)
        os.kill(pid, signal.SIGKILL)
        assert (await pipes.answer(0))["result"]["protocolVersion"] == "2025-11-25"
        assert (await pipes.tool(1, "inc"))["structuredContent"]["count"] == 1


@pytest.mark.thorough
async def test_log_level_and_subscriptions_are_set_again(shared: SharedClients) -> None:
    """The client is told that a resource may have changed meanwhile."""
    async with shared.piped(*PIN) as pipes:
        session = (await pipes.tool(1, "session_info"))["structuredContent"]["session_id"]
        uris = [f"session://{session}/state", f"session://{session}/counter/counter%3A%2F%2Fvalue"]
        await pipes.send({"id": 2, "method": "logging/setLevel", "params": {"level": "error"}})
        await pipes.answer(2)
        for number, uri in enumerate([*uris, "session://gone/state"], 3):
            await pipes.send(
                {"id": number, "method": "resources/subscribe", "params": {"uri": uri}}
            )
            await pipes.answer(number)
        await pipes.send(
            {"id": 6, "method": "resources/unsubscribe", "params": {"uri": uris[1]}},
        )
        await pipes.answer(6)
        await kill(shared)
        with anyio.fail_after(90):
            message = await pipes.line()
        assert message["method"] == "notifications/resources/updated"
        assert message["params"] == {"uri": uris[0]}
        await pipes.send(tool_call(7, "state_update", values={"n": 1}))
        messages = [await pipes.line(), await pipes.line()]
        [update] = [each for each in messages if "method" in each]
        assert update["params"]["uri"] == uris[0]
        await pipes.send(tool_call(8, "say", level="info", message="quiet"))
        assert (await pipes.line())["id"] == 8


@pytest.mark.thorough
async def test_a_subscription_of_2026_07_28_goes_on(shared: SharedClients) -> None:
    async with (
        shared.connect(*PIN, mode="auto") as client,
        shared.connect(*PIN) as other,
        client.listen(tools_list_changed=True) as changes,
    ):
        with anyio.fail_after(90):
            await kill(shared)
            # The client may have missed a change.
            assert "ToolsListChanged" in type(await anext(changes)).__name__
            await other.call_tool("grow", {})
            assert "ToolsListChanged" in type(await anext(changes)).__name__
            await anyio.to_thread.run_sync(shared.stop)
            assert await inc(other) == 1
            assert "ToolsListChanged" in type(await anext(changes)).__name__


@asynccontextmanager
async def standing_in(
    shared: SharedClients,
) -> AsyncGenerator[Callable[[], Awaitable[SocketLines]]]:
    """Stand in for the servers of a data folder. The function returns the next connection of a client, once it is served."""
    async with accepting(shared) as accept:

        async def accept_lines() -> SocketLines:
            connection = await accept()
            return SocketLines(*await asyncio.open_unix_connection(sock=connection))

        yield accept_lines


@asynccontextmanager
async def accepting(
    shared: SharedClients,
) -> AsyncGenerator[Callable[[], Awaitable[socket.socket]]]:
    """Do the same, with a function that returns a connection of which no byte behind its first line was read."""
    shared.folder.create()
    nodes = shared.data / NODES
    create_private_folder(nodes)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        path = claim_socket(nodes, "stand-in")
        listener.bind(os.fspath(path))
        listener.listen()
        listener.setblocking(False)

        async def accept() -> socket.socket:
            loop = asyncio.get_running_loop()
            while True:
                connection, _ = await loop.sock_accept(listener)
                connection.setblocking(False)
                line = b""
                while not line.endswith(b"\n"):
                    line += await loop.sock_recv(connection, 1)
                verb = json.loads(line)["verb"]
                content = {"kind": "background", "ending": False} if verb == PROCESS else {}
                if verb in (PROCESS, VERB, COMMAND):
                    await loop.sock_sendall(
                        connection, json.dumps({"content": content}).encode() + b"\n"
                    )
                if verb in (VERB, COMMAND):
                    return connection
                connection.close()

        yield accept
        remove_socket(nodes, "stand-in")


@dataclass
class SocketLines:
    """The server's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, message: JSON) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")
        await self.writer.drain()

    async def line(self) -> JSON:
        with anyio.fail_after(90):
            return json.loads(await self.reader.readline())

    @asynccontextmanager
    async def dying(self) -> AsyncGenerator[None]:
        """Read nothing any more, as a killed process, and close when a line has come that is not read."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        yield
        poll = select.poll()
        poll.register(self.writer.get_extra_info("socket").fileno(), select.POLLIN)
        await anyio.to_thread.run_sync(poll.poll, 60_000)
        transport.abort()


@pytest.mark.thorough
async def test_half_a_line_of_a_server_is_dropped(shared: SharedClients) -> None:
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            server = await accept()
            await pipes.send(tool_call(1, "inc"), tool_call(2, "inc"))
            assert [(await server.line())["id"], (await server.line())["id"]] == [1, 2]
            whole = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
            server.writer.write(whole + whole.replace(b"1", b"2")[:-3])
            server.writer.close()
            assert await pipes.line() == {"jsonrpc": "2.0", "id": 1, "result": {}}
            unknown = (await pipes.line())["result"]["_meta"]["statehold/error"]
            assert unknown["code"] == "outcome_unknown"
            server = await accept()
            await server.send({"jsonrpc": "2.0", "method": "notifications/message"})
            assert (await pipes.line())["method"] == "notifications/message"
            server.writer.close()


@pytest.mark.thorough
async def test_half_a_line_of_a_client_reaches_the_next_server_as_a_whole(
    shared: SharedClients,
) -> None:
    """Also one that a server has read a part of: it cannot have run."""
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            server = await accept()
            call = tool_call(1, "echo", text="x" * (2 << 20))
            received = b""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pipes.send, call)
                assert (await server.reader.readexactly(100)).startswith(b'{"jsonrpc"')
                server.writer.transport.abort()
                server = await accept()
                while b"\n" not in received[-1:]:
                    received += await server.reader.read(1 << 20)
            assert json.loads(received) == {"jsonrpc": "2.0", **call}
            await server.send({"jsonrpc": "2.0", "id": 1, "result": {}})
            assert (await pipes.answer(1))["result"] == {}
            server.writer.close()


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="not known elsewhere")


@ON_LINUX
async def test_a_call_that_a_killed_server_did_not_read_goes_to_the_next_one(
    shared: SharedClients,
) -> None:
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            server = await accept()
            await pipes.send(tool_call(1, "inc"))
            assert (await server.line())["id"] == 1
            async with server.dying():
                await pipes.send(tool_call(2, "inc"))
            unknown = await pipes.answer(1)
            assert unknown["result"]["_meta"]["statehold/error"]["code"] == "outcome_unknown"
            server = await accept()
            assert await server.line() == {"jsonrpc": "2.0", **tool_call(2, "inc")}
            # Once it was read it may have run.
            server.writer.close()
            unknown = await pipes.answer(2)
            assert unknown["result"]["_meta"]["statehold/error"]["code"] == "outcome_unknown"


@ON_LINUX
@pytest.mark.thorough
async def test_a_call_before_the_line_that_was_not_read_may_have_run(shared: SharedClients) -> None:
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            server = await accept()
            async with server.dying():
                await pipes.send(
                    tool_call(1, "inc"), {"method": "notifications/roots/list_changed"}
                )
            unknown = await pipes.answer(1)
            assert unknown["result"]["_meta"]["statehold/error"]["code"] == "outcome_unknown"
            server = await accept()
            server.writer.close()


@ON_LINUX
@pytest.mark.thorough
async def test_a_call_of_a_stopped_and_killed_server_runs_once(shared: SharedClients) -> None:
    async with shared.connect(*PIN) as client:
        with anyio.fail_after(90):
            for count in range(1, 6):
                assert await inc(client) == count
            pid = pid_of(shared)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(expect_count, client, 6)
                os.kill(pid, signal.SIGKILL)
                await until_gone(pid)
            assert await inc(client) == 7


@ON_LINUX
@pytest.mark.thorough
async def test_a_command_repeats_a_call_that_its_server_did_not_read(
    shared: SharedClients,
) -> None:
    ran: list[CompletedProcess[bytes]] = []
    line = [*STATEHOLD, "--data", os.fspath(shared.data), "call", "s", "inc"]

    async def run() -> None:
        ran.append(await anyio.run_process(line, check=False))

    async with accepting(shared) as accept, anyio.create_task_group() as tasks:
        with anyio.fail_after(90):
            tasks.start_soon(run)
            killed = await accept()
            await anyio.wait_readable(killed)
            killed.close()
            connection = await accept()
            server = SocketLines(*await asyncio.open_unix_connection(sock=connection))
            request = await server.line()
            result = {"content": [{"type": "text", "text": "1"}], "resultType": "complete"}
            await server.send({**answer_to(request), "result": result})
            server.writer.close()
    assert (ran[0].returncode, ran[0].stdout) == (OK, b"1\n")


async def test_a_client_is_told_of_a_list_only_if_the_next_server_has_another_one(
    shared: SharedClients,
) -> None:
    """Some clients ask for the list where they receive such a notification, and wait for ever for its answer."""
    lists = ([{"name": "one"}], [{"name": "one"}], [{"name": "other"}])
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            await pipes.send(*HELLO, {"id": 1, "method": "tools/list"})
            for tools in lists:
                server = await accept()
                for _ in range(3):
                    message = await server.line()
                    if message["method"] == "initialize":
                        await server.send({**answer_to(message), "result": WITH_LISTS})
                    elif message["method"] == "tools/list":
                        await server.send({**answer_to(message), "result": {"tools": tools}})
                await server.send({"jsonrpc": "2.0", "method": "notifications/message"})
                server.writer.close()
            methods = [(await pipes.line()).get("method") for _ in range(6)]
        assert methods == [
            None,
            None,
            "notifications/message",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/message",
        ]


def answer_to(request: JSON) -> JSON:
    return {"jsonrpc": "2.0", "id": request["id"]}


@pytest.mark.thorough
async def test_a_request_that_ends_each_server_is_repeated_once(shared: SharedClients) -> None:
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            await pipes.send({"id": 1, "method": "tools/list"})
            for _ in range(2):
                server = await accept()
                assert (await server.line())["method"] == "tools/list"
                server.writer.close()
            assert (await pipes.line())["error"]["data"]["code"] == "outcome_unknown"


async def test_a_request_that_an_ending_server_refuses_is_asked_of_the_next_one(
    shared: SharedClients,
) -> None:
    details = ShuttingDown().details()
    refusals: list[JSON] = [
        {"id": 1, "result": {"content": [], "isError": True, "_meta": {ERROR_META: details}}},
        {"id": 2, "error": {"code": types.INVALID_PARAMS, "message": "no", "data": details}},
    ]
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            sent: list[JSON] = [tool_call(1, "inc"), {"id": 2, "method": "resources/read"}]
            await pipes.send(*sent)
            for _ in range(2):
                server = await accept()
                for request, refusal in zip(sent, refusals, strict=True):
                    assert await server.line() == {"jsonrpc": "2.0", **request}
                    line = json.dumps({"jsonrpc": "2.0", **refusal}, separators=(",", ":"))
                    server.writer.write(line.encode() + b"\n")
                await server.writer.drain()
                server.writer.close()
            server = await accept()
            for request in sent:
                await server.line()
                await server.send({"jsonrpc": "2.0", "id": request["id"], "result": {}})
            assert [(await pipes.line())["result"] for _ in sent] == [{}, {}]
            server.writer.close()


@pytest.mark.thorough
async def test_a_next_server_without_the_version_of_the_client_is_an_error_of_its_requests(
    shared: SharedClients,
) -> None:
    async with standing_in(shared) as accept, shared.piped(hello=False) as pipes:
        with anyio.fail_after(90):
            await pipes.send(*HELLO)
            for version in ("2025-11-25", "2025-06-18"):
                server = await accept()
                assert (await server.line())["method"] == "initialize"
                result: JSON = {"protocolVersion": version, "capabilities": {}}
                await server.send({"jsonrpc": "2.0", "id": 0, "result": result})
                assert (await server.line())["method"] == "notifications/initialized"
                if version == "2025-11-25":
                    assert (await pipes.line())["result"] == result
                    server.writer.close()
            assert await server.reader.read() == b""
            server.writer.close()

            async def serve_next() -> None:
                server = await accept()
                await server.send({"jsonrpc": "2.0", "id": 0, "result": result})
                assert await server.reader.read()
                server.writer.close()

            async with anyio.create_task_group() as tasks:
                # A request that comes before the client has noted the end of the last server needs no next one.
                tasks.start_soon(serve_next)
                await pipes.send({"id": 1, "method": "tools/list"})
                assert (await pipes.answer(1))["error"]["data"]["code"] == "service_unavailable"
                tasks.cancel_scope.cancel()


@pytest.mark.thorough
async def test_a_question_of_a_killed_server_is_withdrawn_and_its_answer_reaches_no_other(
    shared: SharedClients,
) -> None:
    hello = json.loads(json.dumps(HELLO))
    hello[0]["params"]["capabilities"] = {"elicitation": {}}
    async with shared.piped(*PIN, hello=False) as pipes:
        await pipes.send(*hello)
        await pipes.answer(0)
        await pipes.send(tool_call(1, "q_ask"))
        asked = await pipes.line()
        assert asked["method"] == "elicitation/create"
        await kill(shared)
        with anyio.fail_after(90):
            withdrawn = await pipes.line()
            assert withdrawn["method"] == "notifications/cancelled"
            assert withdrawn["params"]["requestId"] == asked["id"]
            unknown = await pipes.answer(1)
            code = unknown["result"]["_meta"]["statehold/error"]["code"]
            assert code == "outcome_unknown"
            # The keeper had the process that asked; a new one asks again.
            await pipes.tool(2, "session_restart")
            await pipes.send(tool_call(3, "q_ask"))
            while (again := await pipes.line()).get("method") != "elicitation/create":
                pass
            assert again["id"] != asked["id"]
            answers = {asked["id"]: "of the first", again["id"]: "of the second"}
            for number, text in answers.items():
                content = {"action": "accept", "content": {"answer": text}}
                await pipes.send({"id": number, "result": content})
            assert "of the second" in str(await pipes.answer(3))


@pytest.mark.thorough
async def test_without_a_next_server_a_client_gets_errors_until_there_is_one(
    shared: SharedClients, settings: JSON
) -> None:
    async with shared.piped(*PIN) as pipes:
        await anyio.to_thread.run_sync(shared.stop)
        shared.config.write_text(toml({**settings, "server": {"linger_seconds": "soon"}}))
        await pipes.send(tool_call(1, "inc"), {"id": 2, "method": "tools/list"})
        called, listed = await pipes.line(), await pipes.line()
        assert called["result"]["_meta"]["statehold/error"]["code"] == "service_unavailable"
        assert "server.linger_seconds" in str(called["result"]["content"])
        assert listed["error"]["data"]["code"] == "service_unavailable"
        assert pipes.process.stderr is not None
        assert b"server.linger_seconds" in await pipes.process.stderr.receive()
        shared.config.write_text(toml(settings))
        assert (await pipes.tool(3, "inc"))["structuredContent"]["count"] == 1


@pytest.mark.thorough
async def test_a_next_server_with_other_settings_is_an_error_of_its_requests(
    shared: SharedClients,
) -> None:
    async with shared.piped(*PIN) as pipes:
        await anyio.to_thread.run_sync(shared.stop)
        # A file of its own: the client reads its file again when it sees the next server.
        changed = shared.config.with_name("changed.toml")
        changed.write_text(f"{shared.config.read_text()}\n# changed\n")
        assert shared.run("--config", str(changed)).returncode == OK
        await pipes.send(tool_call(1, "inc"))
        result = (await pipes.answer(1))["result"]
        assert result["_meta"]["statehold/error"]["code"] == "invalid_argument"
        assert "--config" in str(result["content"])
        await pipes.stdin.aclose()
        assert await pipes.process.wait() == USAGE


@pytest.mark.thorough
async def test_a_client_that_leaves_while_no_server_runs_starts_none(
    shared: SharedClients,
) -> None:
    async with shared.piped(*PIN) as pipes:
        await anyio.to_thread.run_sync(shared.stop)
        await pipes.stdin.aclose()
        with anyio.fail_after(90):
            assert await pipes.process.wait() == OK
        assert shared.servers() == []


@pytest.mark.thorough
async def test_a_cancelled_call_is_not_answered_after_a_kill(shared: SharedClients) -> None:
    async with shared.piped(*PIN) as pipes:
        await pipes.tool(1, "inc")
        await pipes.send(tool_call(2, "slow", seconds=60))
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
        await pipes.send(cancel, {"id": 3, "method": "ping"})
        await pipes.answer(3)
        await kill(shared)
        messages: list[JSON] = []
        await pipes.send(tool_call(4, "inc"))
        while (message := await pipes.line()).get("id") != 4:
            messages.append(message)
        assert [message for message in messages if "id" in message] == []


def test_names_of_the_protocol_are_those_of_the_sdk() -> None:
    """The program of a client does not import the SDK."""
    assert conversation.SUBSCRIPTION_META == SUBSCRIPTION_ID_META_KEY
    assert conversation.VERSION_META == types.PROTOCOL_VERSION_META_KEY
    assert conversation.ERROR_META == ERROR_META
    assert conversation.INVALID_PARAMS == types.INVALID_PARAMS
    assert conversation.CONNECTION_CLOSED == types.CONNECTION_CLOSED
