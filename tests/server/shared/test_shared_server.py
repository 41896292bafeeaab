"""The life of the background server: one per data folder, started by the first client, ended when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from support.gateway_process import JSON, service, structured, toml
from support.piped import HELLO, Pipes
from support.selection import matrix
from support.shared_clients import SharedClients
from support.task_client import ENDED, TASKS, VERSION, Gate
from support.waiting import until, until_blocking

from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.server.shared.folder import LOG_BYTES
from statehold.server.shared.request import VERB, ClientRequest, build_id
from statehold.server.sockets.request import Unreachable
from statehold.shell.commands import parse_command_line
from statehold.shell.main import main
from statehold.shell.shared import settings_of

RACING = 6
STARTS = 4


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"server": {"linger_seconds": 600}, "services": {"quick": service("quick")}}


def write(shared: SharedClients, settings: JSON, **server: Any) -> None:
    table = {**settings, "server": {**settings.get("server", {}), **server}}
    shared.config.write_text(toml(table))


def status_of(shared: SharedClients) -> JSON:
    status = shared.status()
    assert status is not None
    return status


async def inc(client: Any) -> int:
    return structured(await client.call_tool("inc", {}))["count"]


@pytest.mark.thorough
async def test_racing_clients_start_one_server(shared: SharedClients) -> None:
    counts: list[int] = []
    all_counted = anyio.Event()

    async def count() -> None:
        async with shared.connect("--session", "race") as client:
            counts.append(await inc(client))
            if len(counts) == RACING:
                all_counted.set()
            await all_counted.wait()

    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for _ in range(RACING):
                tasks.start_soon(count)
    assert sorted(counts) == list(range(1, RACING + 1))
    assert shared.servers() == [status_of(shared)["pid"]]


@pytest.mark.thorough
async def test_clients_that_come_and_go_leave_one_server_and_then_none(
    shared: SharedClients, settings: JSON
) -> None:
    write(shared, settings, linger_seconds=0)
    async with shared.piped() as stays:
        pids: set[int] = set()
        for _ in range(STARTS):
            async with shared.piped("--session", "comes and goes") as leaves:
                await leaves.stdin.aclose()
                assert await leaves.process.wait() == OK
            pids.add(status_of(shared)["pid"])
        assert shared.servers() == list(pids)
        await stays.stdin.aclose()
        assert await stays.process.wait() == OK
    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(shared.wait_ended)
    assert shared.status() is None
    assert shared.servers() == []


@pytest.mark.thorough
def test_a_client_that_comes_while_the_server_ends_is_served(
    shared: SharedClients, settings: JSON
) -> None:
    write(shared, settings, linger_seconds=0)
    for _ in range(2):
        ran = shared.run()
        assert (ran.returncode, ran.stderr) == (OK, b"")


@pytest.mark.thorough
async def test_a_live_session_and_a_connected_client_keep_the_server(
    shared: SharedClients, settings: JSON
) -> None:
    write(shared, settings, linger_seconds=0)
    async with shared.connect("--session", "kept") as client:
        assert await inc(client) == 1
        pid = status_of(shared)["pid"]
    # Its session is idle: the server stays, and the next client finds the session as it was.
    async with shared.connect("--session", "kept") as client:
        assert await inc(client) == 2
        assert status_of(shared)["pid"] == pid
        await client.call_tool("session_close", {})
        assert status_of(shared)["clients"] == 1
    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(shared.wait_ended)


@pytest.mark.thorough
async def test_a_killed_server_is_replaced_and_its_sessions_go_on(shared: SharedClients) -> None:
    async with shared.piped("--session", "s") as pipes:
        await pipes.tool(1, "inc")
        killed = status_of(shared)["pid"]
        # The server is no descendant of the client that started it.
        assert psutil.Process(pipes.process.pid).children(recursive=True) == []
        assert os.getsid(killed) == killed
        os.kill(killed, signal.SIGKILL)
        await anyio.to_thread.run_sync(shared.wait_ended)
        assert (await pipes.tool(2, "session_info"))["structuredContent"]["name"] == "s"
    async with shared.connect("--session", "s") as client:
        result = await client.call_tool("inc", {})
        assert result.structured_content is not None
        assert result.structured_content["count"] == 2
        assert not any("Note from" in getattr(block, "text", "") for block in result.content)
        assert status_of(shared)["pid"] != killed


@pytest.mark.thorough
async def test_a_task_outlives_its_client_and_the_server(
    shared: SharedClients, tmp_path: Path
) -> None:
    meta: JSON = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }

    async def ask(pipes: Pipes, number: int, method: str, **params: Any) -> JSON:
        await pipes.send({"id": number, "method": method, "params": {**params, "_meta": meta}})
        return (await pipes.answer(number))["result"]

    write(shared, {"services": {"asking": service("asking", "--long")}}, linger_seconds=600)
    gate = Gate(tmp_path / "gate")
    async with shared.piped(hello=False) as one:
        created = await ask(one, 1, "tools/call", name="session_create", arguments={})
        session = created["structuredContent"]["session_id"]
        arguments = {"session_id": session, "fifo": str(gate.path)}
        task = (await ask(one, 2, "tools/call", name="hold", arguments=arguments))["taskId"]
        os.kill(status_of(shared)["pid"], signal.SIGKILL)
    async with shared.piped(hello=False) as other:
        numbers = count(1)
        found = await ask(other, next(numbers), "tasks/get", taskId=task)
        assert found["status"] == "working"
        await gate.release()

        async def ended() -> JSON | None:
            task_now = await ask(other, next(numbers), "tasks/get", taskId=task)
            return task_now if task_now["status"] in ENDED else None

        result = await until(ended)
        assert result is not None
        assert result["result"]["content"][0]["text"] == "held"


@pytest.mark.thorough
async def test_a_client_of_another_build_gets_a_new_server_once(shared: SharedClients) -> None:
    """Two clients of two builds, which are open at once, do not end each other's servers."""
    async with shared.piped("--session", "s") as old:
        await old.tool(1, "state_update", values={"step": 7})
        before = status_of(shared)["pid"]
        members = ClientRequest("other", settings=settings_in(shared)).members()
        with pytest.raises(Unreachable):
            shared.folder.send(VERB, members)
        await anyio.to_thread.run_sync(shared.wait_ended)
        # The program of the first client goes on, with the next server, which it does not replace again.
        state = (await old.tool(2, "state_get"))["structuredContent"]
        assert state["value"] == {"step": 7}
        after = status_of(shared)["pid"]
        assert after != before
        # Nor does the other client, which comes back after the end of its server.
        again = ClientRequest(settings=settings_in(shared)).members()
        shared.folder.send(VERB, again).connection.close()
        assert status_of(shared)["pid"] == after


@pytest.mark.thorough
def test_a_client_of_the_same_build_is_served(running: SharedClients) -> None:
    running.run()
    pid = status_of(running)["pid"]
    request = ClientRequest(build_id(), settings=settings_in(running))
    running.folder.send(VERB, request.members()).connection.close()
    assert status_of(running)["pid"] == pid


def settings_in(shared: SharedClients) -> dict[str, str]:
    """Return the settings that the clients of a folder ask for."""
    return settings_of(parse_command_line(shared.command()[3:]))


def assert_refused(ran: subprocess.CompletedProcess[bytes], name: str, data: Path) -> None:
    """The text is on stderr, and in the answer to `initialize`: many clients show nothing of stderr."""
    assert ran.returncode == USAGE
    [line] = ran.stderr.decode().splitlines()
    [answer] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert answer["id"] == 0
    assert answer["error"]["data"]["code"] == "invalid_argument"
    for text in (line, answer["error"]["message"]):
        assert f"with {name}." in text
        assert f"Run: statehold stop --data {data}, then" in text


def test_a_client_that_asks_for_other_settings_gets_an_error(
    running: SharedClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running.run().returncode == OK
    hello = hello_line()
    assert_refused(running.run("--toolsets", "core", given=hello), "--toolsets", running.data)
    monkeypatch.setenv("STATEHOLD_TIMEOUTS__CALL", "7")
    assert_refused(running.run(given=hello), "STATEHOLD_TIMEOUTS__CALL", running.data)


def hello_line() -> bytes:
    return json.dumps({"jsonrpc": "2.0", **HELLO[0]}).encode() + b"\n"


def test_a_client_that_gives_fewer_settings_is_served_with_a_note(
    running: SharedClients, tmp_path: Path
) -> None:
    assert running.run().returncode == OK
    command = [word for word in running.command() if word not in ("--config", str(running.config))]
    ran = subprocess.run(command, input=hello_line(), capture_output=True, timeout=90, check=True)
    [answer] = [json.loads(line) for line in ran.stdout.splitlines()]
    [line] = ran.stderr.decode().splitlines()
    for text in (line, answer["result"]["instructions"]):
        assert "was started with --config (STATEHOLD_CONFIG)" in text


@pytest.mark.thorough
def test_changed_settings_count_after_a_stop(shared: SharedClients, settings: JSON) -> None:
    assert shared.run().returncode == OK
    write(shared, settings, linger_seconds=500)
    assert_refused(shared.run(given=hello_line()), "--config (STATEHOLD_CONFIG)", shared.data)
    shared.stop()
    assert shared.run().returncode == OK


@pytest.mark.thorough
async def test_a_refused_client_is_served_when_the_reason_is_gone(
    shared: SharedClients, settings: JSON
) -> None:
    assert shared.run().returncode == OK
    write(shared, settings, linger_seconds=500)
    async with shared.piped(hello=False) as pipes:
        await pipes.send(HELLO[0])
        assert (await pipes.answer(0))["error"]["data"]["code"] == "invalid_argument"
        await anyio.to_thread.run_sync(shared.stop)
        await pipes.send(*HELLO)
        assert "result" in await pipes.answer(0)
        assert (await pipes.tool(1, "session_create"))["structuredContent"]["session_id"]


@pytest.mark.thorough
def test_the_session_of_a_client_is_its_own_also_in_the_environment(
    running: SharedClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running.run().returncode == OK
    monkeypatch.setenv("STATEHOLD_SERVER__SESSION", "mine")
    assert running.run().returncode == OK
    monkeypatch.setenv("STATEHOLD_SERVER__SESSION", "no/name")
    ran = running.run()
    assert ran.returncode == USAGE
    assert b"should have 1 to 128 characters" in ran.stderr


@pytest.mark.thorough
def test_a_server_that_cannot_start_gives_its_reason(shared: SharedClients, settings: JSON) -> None:
    write(shared, settings, linger_seconds="soon")
    ran = shared.run(given=hello_line())
    assert ran.returncode == FAILURE
    assert "server.linger_seconds" in json.loads(ran.stdout)["error"]["message"]
    [line] = ran.stderr.decode().splitlines()
    assert "did not start: " in line
    assert "server.linger_seconds" in line
    write(shared, settings)
    shared.data.joinpath("nodes").touch()
    ran = shared.run()
    assert ran.returncode == FAILURE
    [line] = ran.stderr.decode().splitlines()
    assert "nodes in the data folder cannot be used" in line
    shared.data.joinpath("nodes").unlink()
    assert shared.run("--ephemeral").returncode == FAILURE
    # A client ends with the report of the server, which may come before its process has ended.
    until_blocking(lambda: shared.servers() == [])


@pytest.mark.thorough
def test_a_wrong_file_of_settings_is_explained(shared: SharedClients) -> None:
    shared.config.write_text("[server\n")
    command = [word for word in shared.command() if word not in ("--data", str(shared.data))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == USAGE
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"statehold: {shared.config}: line 1")


def test_status_and_stop(running: SharedClients, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", str(running.data)]

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main([*words, *flags]) == OK
        return capsys.readouterr().out

    running.stop()
    assert "no server runs" in run("status")
    assert "no server runs" in run("stop")
    status = json.loads(run("status", "--json"))
    nothing: dict[str, Any] = {
        "running": False,
        "data": str(running.data),
        "processes": [],
        "keeper": None,
    }
    assert status == nothing
    assert running.run().returncode == OK
    status = json.loads(run("status", "--json"))
    assert status["running"]
    assert status["clients"] == status["live_sessions"] == 0
    assert psutil.pid_exists(status["pid"])
    assert time.time() - 60 < status["started_at"] <= time.time()
    text = run("status")
    assert f"pid            {status['pid']}" in text
    assert str(running.folder.log) in text
    assert f"pid {status['pid']})" in run("stop")
    running.wait_ended()
    assert running.servers() == []
    assert "no server runs" in run("status")


@pytest.mark.thorough
def test_a_second_server_of_a_folder_does_not_start(running: SharedClients) -> None:
    assert running.run().returncode == OK
    words = running.command()
    words.remove("--shared")
    ran = subprocess.run(
        [*words, "serve", "--shared"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == USAGE
    assert "a server runs already" in ran.stderr


@pytest.mark.thorough
def test_the_socket_and_the_log_are_the_users_alone(shared: SharedClients) -> None:
    assert shared.run().returncode == OK
    folder = shared.folder

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(folder.path) == mode(shared.socket.parent) == 0o700
    assert mode(shared.socket) == mode(folder.log) == 0o600
    shared.stop()
    folder.path.chmod(0o755)
    ran = shared.run()
    assert ran.returncode == FAILURE
    assert b"chmod 700" in ran.stderr
    folder.path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="becomes another user")
def test_another_user_is_refused_even_where_the_folder_is_open(running: SharedClients) -> None:
    assert running.run().returncode == OK
    path = running.socket
    path.parent.chmod(0o711)
    path.chmod(0o666)
    child = os.fork()
    if not child:
        code = 7
        try:
            os.chdir(path.parent)
            os.setuid(65_534)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(path.name)
                connection.sendall(b'{"verb": "status"}\n')
                code = len(connection.recv(1))
        except ConnectionError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    path.parent.chmod(0o700)
    assert "another user connected" in running.folder.log.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    matrix(
        b'{"verb": "shared"}\n',
        b'{"verb": "shared", "version": "1", "pid": 1, "settings": []}\n',
        b'{"verb": "other"}\n',
        b"",
        b"x" * 100_000 + b"\n",
    ),
)
def test_a_malformed_request_ends_only_its_connection(running: SharedClients, line: bytes) -> None:
    assert running.run().returncode == OK
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(os.fspath(running.socket))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert (b"error" in answer) is bool(line)
    assert status_of(running)["clients"] == 0
    assert "Traceback" not in running.folder.log.read_text()


@pytest.mark.thorough
def test_a_data_folder_with_a_long_path_has_a_server_too(
    settings: JSON, shared: SharedClients, tmp_path: Path
) -> None:
    data = tmp_path / ("long" * 20) / "data"
    data.parent.mkdir(parents=True)
    deep = SharedClients(shared.config, data)
    try:
        assert deep.run().returncode == OK
        assert not deep.socket.is_relative_to(data)
        assert status_of(deep)["version"]
    finally:
        deep.stop()


@pytest.mark.thorough
def test_a_long_log_is_set_aside_at_the_start(shared: SharedClients) -> None:
    shared.folder.create()
    shared.folder.log.write_text("old\n" * LOG_BYTES)
    assert shared.run().returncode == OK
    assert shared.folder.log.stat().st_size < LOG_BYTES
    assert shared.folder.log.with_suffix(".log.1").stat().st_size == 4 * LOG_BYTES
