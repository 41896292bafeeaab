"""The end of a Statehold process: calls are answered, no child is left, and the sessions are there after a restart."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil
import pytest
from mcp import MCPError
from support.fork_server import ForkedProgram
from support.gateway_process import (
    JSON,
    Era,
    Running,
    Transport,
    Way,
    code_of,
    count,
    opened_session,
    service,
    serving,
    statehold,
    structured,
    text_of,
    toml,
)
from support.piped import HELLO, piped, tool_call
from support.process_exit import until_gone
from support.runs import entries, wait_for_call
from support.selection import matrix
from support.waiting import until


@pytest.fixture
def config(tmp_path: Path, log: Path) -> Path:
    path = tmp_path / "statehold.toml"
    services = {"quick": service("asking", "--log", str(log))}
    path.write_text(toml({"timeouts": {"close_grace": 5}, "services": services}))
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "statehold.toml"
    path.write_text(toml({"services": {"counter": service("counter")}}))
    return path


async def ended(process: subprocess.Popen[bytes] | ForkedProgram) -> int:
    with anyio.fail_after(20):
        return await anyio.to_thread.run_sync(process.wait)


def way_to(running: Running, transport: Transport, era: Era, config: Path, data: Path) -> Way:
    return Way(transport, era, config, data, url=running.url)


@pytest.mark.parametrize(
    ("transport", "era", "as_installed"),
    matrix(
        pytest.param("http", "modern", False, id="http-modern"),
        pytest.param("http", "modern", True, id="as installed"),
        pytest.param("http", "legacy", False, id="http-legacy"),
        pytest.param("sse", "legacy", False, id="sse-legacy"),
    ),
)
async def test_a_call_in_flight_is_answered_after_sigterm(
    config: Path, log: Path, tmp_path: Path, transport: Transport, era: Era, as_installed: bool
) -> None:
    with serving(config, tmp_path / "data", as_installed=as_installed) as running:
        answers: list[str] = []
        children: list[psutil.Process] = []
        async with way_to(running, transport, era, config, tmp_path).connect() as client:
            session = await opened_session(client)
            busy, idle = session, await opened_session(client)
            await count(client, idle)

            async def slow() -> None:
                result = await client.call_tool("slow", {"session_id": busy, "seconds": 1})
                answers.append(text_of(result))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow)
                pid = (await wait_for_call(log, "slow"))["pid"]
                children += psutil.Process(running.process.pid).children(recursive=True)
                # Its parent is the keeper.
                children.append(psutil.Process(pid))
                running.process.send_signal(signal.SIGTERM)
                await anyio.sleep(0.1)
                refused = await client.call_tool("inc", {"session_id": idle})
                assert code_of(refused) == "service_unavailable"
            assert answers == ["done"]
            assert await ended(running.process) == 0
        await until_gone(*(child.pid for child in children))
        assert "Traceback" not in running.log
        assert "ERROR" not in running.log


@pytest.mark.thorough
async def test_answers_after_sigterm_close_their_connections(
    config: Path, log: Path, tmp_path: Path
) -> None:
    with serving(config, tmp_path / "data") as running:
        way = Way("http", "modern", config, tmp_path, url=running.url)
        async with way.connect() as client, anyio.create_task_group() as tasks:
            session = await opened_session(client)
            arguments = {"session_id": session, "seconds": 2}
            tasks.start_soon(client.call_tool, "slow", arguments)
            await wait_for_call(log, "slow")
            async with httpx2.AsyncClient(base_url=running.url, timeout=60) as http:
                assert "connection" not in (await http.get("/livez")).headers
                running.process.send_signal(signal.SIGTERM)

                async def connection() -> str | None:
                    return (await http.get("/livez")).headers.get("connection")

                # Until the signal has arrived.
                assert await until(connection) == "close"


@pytest.mark.thorough
@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_open_streams_do_not_keep_the_process_from_ending(
    config: Path, tmp_path: Path, era: Era
) -> None:
    with serving(config, tmp_path / "data") as running:
        async with AsyncExitStack() as stack:
            for transport in ("http", "sse"):
                way = way_to(running, transport, era, config, tmp_path)
                client = await stack.enter_async_context(way.connect())
                await opened_session(client)
                if era == "modern":
                    await stack.enter_async_context(client.listen(tools_list_changed=True))
            running.process.send_signal(signal.SIGTERM)
            assert await ended(running.process) == 0
        # uvicorn logs this when it has to cancel a task that does not end by itself.
        assert "Cancel" not in running.log
        assert "Traceback" not in running.log


async def test_a_call_that_does_not_end_is_cancelled_after_the_grace(
    tmp_path: Path, log: Path
) -> None:
    config = tmp_path / "statehold.toml"
    services = {"quick": service("quick", "--log", str(log))}
    config.write_text(toml({"timeouts": {"close_grace": 0.2}, "services": services}))
    with serving(config, tmp_path / "data") as running:
        way = way_to(running, "http", "modern", config, tmp_path)
        codes: list[str] = []
        async with way.connect() as client:
            session = await opened_session(client)

            async def hang() -> None:
                codes.append(code_of(await client.call_tool("hang", {"session_id": session})))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                await wait_for_call(log, "hang")
                running.process.send_signal(signal.SIGTERM)
            # Not closed: it is there again with the next start.
            assert codes == ["outcome_unknown"]
            assert await ended(running.process) == 0
        assert entries(log)[-1]["event"] == "cancelled"
    with serving(config, tmp_path / "data") as running:
        async with way_to(running, "http", "modern", config, tmp_path).connect() as client:
            listed = structured(await client.call_tool("session_list", {}))["sessions"]
            assert [(s["session_id"], s["status"]) for s in listed] == [(session, "paused")]


@pytest.mark.parametrize("number", matrix(signal.SIGTERM, signal.SIGINT))
async def test_a_signal_counts_as_soon_as_the_port_accepts(
    config: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--config", str(config), "--data", str(tmp_path / "data"), "--port", str(port)]
    command = [*statehold(), "serve", *options]
    async with await anyio.open_process(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None

        async def accepts() -> bool:
            with suppress(OSError):
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                return True
            return False

        await until(accepts)
        with anyio.fail_after(30):
            process.send_signal(number)
            errors = b"".join([piece async for piece in process.stderr]).decode()
            assert await process.wait() == 0, errors
    assert "Traceback" not in errors


@pytest.mark.thorough
async def test_a_second_signal_ends_the_process_without_a_traceback(
    config: Path, log: Path, tmp_path: Path
) -> None:
    with serving(config, tmp_path / "data") as running:
        async with way_to(running, "http", "modern", config, tmp_path).connect() as client:
            session, idle = await opened_session(client), await opened_session(client)

            async def hang() -> None:
                with suppress(MCPError):
                    await client.call_tool("hang", {"session_id": session})

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                await wait_for_call(log, "hang")
                running.process.send_signal(signal.SIGTERM)

                async def is_refused() -> bool:
                    return (await client.call_tool("inc", {"session_id": idle})).is_error

                await until(is_refused)
                running.process.send_signal(signal.SIGTERM)
                assert await ended(running.process) == 0
                tasks.cancel_scope.cancel()
    assert "Traceback" not in running.log


async def test_a_process_killed_without_a_keeper_leaves_no_child_and_every_session(
    config: Path, tmp_path: Path
) -> None:
    without = {"STATEHOLD_KEEPER__LINGER_SECONDS": "0"}
    with serving(config, tmp_path / "data", env=without) as running:
        async with way_to(running, "http", "modern", config, tmp_path).connect() as client:
            sessions = [
                await opened_session(client, name=f"s{n}", metadata={"n": n}) for n in range(3)
            ]
            pids = [
                structured(await client.call_tool("inc", {"session_id": s}))["pid"]
                for s in sessions
            ]
            children = psutil.Process(running.process.pid).children(recursive=True)
            assert set(pids) <= {child.pid for child in children}
        running.process.kill()
        assert await ended(running.process) == -signal.SIGKILL
        await until_gone(*(child.pid for child in children))
    with serving(config, tmp_path / "data", env=without) as running:
        async with way_to(running, "http", "legacy", config, tmp_path).connect() as client:
            listed = structured(await client.call_tool("session_list", {}))["sessions"]
            assert {s["session_id"]: s["status"] for s in listed} == dict.fromkeys(
                sessions, "paused"
            )
            for n, session in enumerate(sessions):
                info = structured(await client.call_tool("session_info", {"session_id": session}))
                assert (info["name"], info["metadata"]) == (f"s{n}", {"n": n})
                result = await client.call_tool("inc", {"session_id": f"s{n}"})
                assert structured(result)["count"] == 1
                assert "generation 1 to 2; the server was restarted" in text_of(result)


# stdio


def family_of(upstream: int) -> list[psutil.Process]:
    """Return all processes started by the Statehold that started this one."""
    parent = psutil.Process(upstream).parent()
    assert parent is not None
    return parent.children(recursive=True)


@pytest.mark.parametrize("how", matrix("closed", "sigterm", "sigint"))
async def test_a_stdio_call_in_flight_is_answered_before_the_end(
    config: Path, log: Path, tmp_path: Path, how: str
) -> None:
    async with piped(config, tmp_path / "data", as_installed=how == "sigterm") as pipes:
        created = await pipes.tool(1, "session_create", state={"a": 1})
        session = created["structuredContent"]["session_id"]
        await pipes.send(tool_call(2, "slow", session_id=session, seconds=0.5))
        children = family_of((await wait_for_call(log, "slow"))["pid"])
        assert children
        if how == "closed":
            await pipes.stdin.aclose()
        else:
            pipes.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
        answer = await pipes.answer(2)
        assert answer["result"]["content"][0]["text"] == "done"
        assert await pipes.rest() == []
        with anyio.fail_after(20):
            assert await pipes.process.wait() == 0
        await until_gone(*(child.pid for child in children))
    async with piped(config, tmp_path / "data") as pipes:
        info = await pipes.tool(1, "session_info", session_id=session)
        assert info["structuredContent"]["status"] == "paused"


@pytest.mark.thorough
async def test_requests_from_a_file_are_answered_to_a_file(config: Path, tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    lines = [*HELLO, tool_call(1, "session_create", name="from a file")]
    lines.append(tool_call(2, "session_list"))
    requests.write_text("".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines))
    command = [*statehold(), "--config", str(config), "--data", str(tmp_path / "data")]
    with requests.open("rb") as stdin, (tmp_path / "answers").open("wb") as stdout:
        done = await anyio.run_process(command, stdin=stdin, stdout=stdout, stderr=None)
    assert done.returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines()]
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert not any("error" in answer for answer in answers)


async def test_nothing_but_mcp_is_on_stdout(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    services = {
        "lying": service("bad", "lying", prefix="l_"),
        "loud": service("bad", "flood-stderr", "1", prefix="s_"),
        "absent": service("bad", "exit-at-start"),
    }
    config.write_text(toml({"log": {"level": "info"}, "services": services}))
    async with piped(config, tmp_path / "data") as pipes:
        created = await pipes.tool(1, "session_create")
        session = created["structuredContent"]["session_id"]
        await pipes.stdin.send(b"this is no JSON\n\n[]\n")
        for number, tool in enumerate(("l_not_json", "l_twice", "s_flood", "l_get"), 2):
            result = await pipes.tool(number, tool, session_id=session)
            assert result["content"]
        assert pipes.process.stderr is not None
        errors = b""
        with anyio.fail_after(20):
            while b"absent is not available" not in errors:
                errors += await pipes.process.stderr.receive()
        await pipes.stdin.aclose()
        # Each line was parsed as JSON.
        assert all(message["jsonrpc"] == "2.0" for message in await pipes.rest())
        with anyio.fail_after(20):
            assert await pipes.process.wait() == 0


@pytest.mark.thorough
async def test_malformed_notifications_do_not_end_a_stdio_process(
    config: Path, tmp_path: Path
) -> None:
    async with piped(config, tmp_path / "data") as pipes:
        wrong: list[JSON] = [{"requestId": {}}, {"requestId": [1]}, {"requestId": None}, {}]
        for params in wrong:
            await pipes.send({"method": "notifications/cancelled", "params": params})
        await pipes.send({"method": "notifications/cancelled"})
        await pipes.send({"method": "notifications/progress", "params": {"progressToken": {}}})
        assert "content" in await pipes.tool(1, "session_list")
        await pipes.stdin.aclose()
        assert await pipes.rest() == []
        with anyio.fail_after(20):
            assert await pipes.process.wait() == 0


@pytest.mark.thorough
async def test_a_client_that_is_gone_ends_the_process(
    config: Path, log: Path, tmp_path: Path
) -> None:
    """Both pipes break in the middle of a call, and the answer is never read."""
    async with piped(config, tmp_path / "data") as pipes:
        created = await pipes.tool(1, "session_create")
        session = created["structuredContent"]["session_id"]
        await pipes.send(tool_call(2, "slow", session_id=session, seconds=0.3))
        children = family_of((await wait_for_call(log, "slow"))["pid"])
        assert children
        await pipes.stdin.aclose()
        await pipes.out.aclose()
        with anyio.fail_after(20):
            assert await pipes.process.wait() == 0
        await until_gone(*(child.pid for child in children))


@pytest.mark.thorough
async def test_answers_that_no_client_reads_are_dropped_without_a_traceback(
    config: Path, tmp_path: Path
) -> None:
    """The requests of a killed client stay in the pipe, and their answers are never read."""
    async with piped(config, tmp_path / "data") as pipes:
        assert pipes.process.stderr is not None
        await pipes.out.aclose()
        for number in range(1, 30):
            await pipes.send(tool_call(number, "session_create" if number < 5 else "session_list"))
        await pipes.stdin.aclose()
        with anyio.fail_after(20):
            errors = b"".join([piece async for piece in pipes.process.stderr]).decode()
            assert await pipes.process.wait() == 0, errors
        assert "Traceback" not in errors
        assert "ERROR" not in errors


@pytest.mark.thorough
async def test_the_command_line_changes_the_sessions_that_a_server_holds(
    config: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"

    async def sessions(*action: str) -> Any:
        command = [*statehold(), "sessions", *action, "--json", "--data", str(data)]
        done = await anyio.run_process([*command, "--config", str(config)], check=False)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    with serving(config, data) as running:
        async with way_to(running, "http", "modern", config, tmp_path).connect() as client:
            session = await opened_session(client, name="desk")
            assert await count(client, session) == 1
            (shown,) = (await sessions("list"))["sessions"]
            assert (shown["session_id"], shown["status"]) == (session, "idle")
            for action, status in (("pause", "paused"), ("resume", "idle"), ("close", "closed")):
                await sessions(action, "desk")
                info = structured(await client.call_tool("session_info", {"session_id": session}))
                assert info["status"] == status
            assert info["reason"] == "cli"


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="other systems give memory back by themselves")
async def test_the_memory_of_large_answers_is_given_back(large: Path, tmp_path: Path) -> None:
    with serving(large, tmp_path / "data", as_installed=True) as running:
        process = psutil.Process(running.process.pid)
        async with way_to(running, "http", "modern", large, tmp_path).connect("/s/big/mcp") as c:
            before = process.memory_info().rss
            for _ in range(8):
                assert len(text_of(await c.call_tool("big", {"kib": 14 << 10}))) == 14 << 20
            assert process.memory_info().rss - before < 60 << 20
