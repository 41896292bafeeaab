"""How blocks and clients end: with an exception, a cancelled task, Ctrl-C, or the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from front import JSON, Running, service

from statehold.client import Client, Session, connect
from statehold.client.errors import ServerUnreachable, SessionNotFound

INSIDE = {
    "async": """
        import asyncio
        from statehold.client import connect
        async def main():
            async with connect(URL) as client, client.session(NAME, services=["quick"]) as s:
                print("ready", flush=True)
                await s.call("hang")
        asyncio.run(main())
    """,
    "anyio": """
        import anyio
        from statehold.client import connect
        async def main():
            async with connect(URL) as client, client.session(NAME, services=["quick"]) as s:
                print("ready", flush=True)
                await s.call("hang")
        anyio.run(main)
    """,
    "sync": """
        from statehold.client.sync import connect
        with connect(URL) as client, client.session(NAME, services=["quick"]) as s:
            print("ready", flush=True)
            s.call("hang")
    """,
    "never left": """
        from statehold.client.sync import connect
        client = connect(services=SERVICES).__enter__()
        s = client.create(services=["quick"])
        s.call("inc")
        print("ready", flush=True)
        s.call("hang")
    """,
}


def started(program: str, **values: Any) -> subprocess.Popen[str]:
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    command = [sys.executable, "-c", head + textwrap.dedent(program)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("inside", INSIDE)
async def test_ctrl_c_ends_the_session_and_is_what_the_program_sees(
    inside: str, server: Running, settings: JSON
) -> None:
    services = {"quick": settings["services"]["quick"]}
    with started(INSIDE[inside], URL=server.url, NAME=inside, SERVICES=services) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert bool(children) is (inside == "never left")
        process.send_signal(signal.SIGINT)
        said = await anyio.to_thread.run_sync(process.stderr.read)
        assert process.wait(10) == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert "ExceptionGroup" not in said
    assert psutil.wait_procs(children, 5)[1] == []
    async with connect(server.url) as client:
        with pytest.raises(SessionNotFound):
            await client.get(inside)


async def test_an_exception_in_a_block_is_the_callers_own(client: Client, way: Any) -> None:
    """Covers AM-03."""
    error = ValueError("mine")
    sessions: list[Session] = []

    async def work() -> None:
        async with way() as other, other.session("mine", services=["quick"]) as s:
            sessions.append(s)
            await s.call("inc")
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await work()
    assert caught.value is error
    assert error.__context__ is None
    assert not sessions[0].is_open
    assert await client.list_sessions(name="mine") == []


async def test_a_cancelled_task_closes_its_session(client: Client) -> None:
    held = anyio.Event()
    sessions: list[Session] = []

    async def work() -> None:
        async with client.session("held", services=["quick"]) as s:
            sessions.append(s)
            held.set()
            await s.call("hang")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await held.wait()
            tasks.cancel_scope.cancel()
    assert (await sessions[0].info()).status == "closed"


async def test_nothing_is_left_when_a_client_is_closed(way: Any, leaks: Any) -> None:
    with anyio.fail_after(20):
        async with way() as client:
            s = await client.create(services=["quick"])
            await s.call("inc")
            await s.close()
        await client.aclose()
        await leaks.check()
    with pytest.raises(ServerUnreachable):
        await client.call("inc")
    with pytest.raises(RuntimeError):
        await client.__aenter__()


async def test_a_client_may_be_entered_and_left_in_different_tasks(way: Any, leaks: Any) -> None:
    client = way()

    async def enter() -> None:
        with anyio.move_on_after(20):
            await client.__aenter__()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
    async with client.session(services=["quick"]) as s:
        assert (await s.call("inc")).text == "1"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.aclose)
    await leaks.check()


async def test_an_embedded_statehold_keeps_nothing_and_changes_nothing_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("STATEHOLD_DATA", str(tmp_path / "data"))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with connect(services={"quick": service("asking")}) as client, client.session() as s:
        await s.call("inc")
        await s.state.update({"n": 1})
        assert {n: signal.getsignal(n) for n in before} == before
    assert os.listdir(tmp_path) == []


async def test_an_embedded_statehold_keeps_its_sessions_in_a_folder(tmp_path: Path) -> None:
    for number in (1, 2):
        client = connect(services={"quick": service("asking")}, data=tmp_path / "kept")
        async with client, client.session("mine", keep=True) as s:
            assert s.attached is (number == 2)
            assert await s.state.update({"n": number}) == number
    assert os.listdir(tmp_path) == ["kept"]
