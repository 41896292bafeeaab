"""The ends of blocks and of automatic sessions: after an exception, a cancelled task, Ctrl-C, or the program."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from support.gateway_process import JSON, Running
from support.selection import matrix
from support.waiting import until

from statehold.client import Client, Session, connect
from statehold.client.errors import (
    InvalidArgument,
    NoCurrentSession,
    SessionNotFound,
)

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


def start_program(program: str, **values: Any) -> subprocess.Popen[str]:
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    command = [sys.executable, "-c", head + textwrap.dedent(program)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, **pipes)


@pytest.mark.parametrize("inside", matrix(*INSIDE))
async def test_ctrl_c_ends_the_session_and_reaches_the_program(
    inside: str, server: Running, settings: JSON
) -> None:
    services = {"quick": settings["services"]["quick"]}
    with start_program(INSIDE[inside], URL=server.url, NAME=inside, SERVICES=services) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert bool(children) is (inside == "never left")
        process.send_signal(signal.SIGINT)
        output = await anyio.to_thread.run_sync(process.stderr.read)
        assert process.wait(10) == -signal.SIGINT
    assert output.rstrip().endswith("KeyboardInterrupt"), output
    assert "ExceptionGroup" not in output
    assert psutil.wait_procs(children, 5)[1] == []
    async with connect(server.url) as client:
        with pytest.raises(SessionNotFound):
            await client.get(inside)


GOES_ON = """
    import sys
    from statehold.client.sync import connect
    with connect(URL) as client:
        s = client.create(name=NAME, services=["quick"])
        print("ready", flush=True)
        try:
            s.call("hang")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.read()
"""


async def has_status(session: Session, status: str) -> bool:
    return (await session.info()).status == status


async def test_ctrl_c_cancels_the_call_of_a_blocking_program_that_goes_on(server: Running) -> None:
    with start_program(GOES_ON, URL=server.url, NAME="goes on") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        async with connect(server.url) as client:
            session = await client.get("goes on")
            await until(lambda: has_status(session, "active"))
            process.send_signal(signal.SIGINT)
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "interrupted\n"
            await until(lambda: has_status(session, "idle"))
            await session.close()
        process.stdin.close()
        assert process.wait(10) == 0


async def test_an_exception_in_a_block_is_the_callers_own(client: Client) -> None:
    error = ValueError("mine")
    sessions: list[Session] = []

    async def work() -> None:
        async with client.session("mine", services=["quick"]) as s:
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


async def open_sessions_of(client: Client, test: str) -> list[str]:
    return [each.session_id for each in await client.list_sessions(metadata={"test": test})]


async def test_a_session_cancelled_during_its_creation_is_not_left_open(server: Running) -> None:
    async with connect(server.url) as client, client.session() as parent:
        for number in range(12):
            with anyio.move_on_after(0.0007 * number):
                async with client.session(f"left-{number}", metadata={"test": "cancelled"}):
                    await anyio.sleep_forever()
        assert await open_sessions_of(client, "cancelled") == []
        async with client.session() as other:
            for number in range(6):
                with anyio.move_on_after(0.001 * number):
                    await other.fork(2)
        children = [s for s in await client.list_sessions() if s.parent == other.id]
        assert children == []
        assert parent.is_open


async def test_a_block_that_was_left_is_current_nowhere(embedded: Client) -> None:

    async def each() -> AsyncGenerator[Session]:
        async with embedded.session() as inner:
            yield inner

    async with embedded.session() as outer:
        inside = each()
        async for _ in inside:
            break
        await inside.aclose()
        assert embedded.current_session == outer
        first, second = embedded.session(), embedded.session()
        await first.__aenter__()
        b = await second.__aenter__()
        await first.__aexit__(None, None, None)
        assert embedded.current_session == b
        await second.__aexit__(None, None, None)
        assert embedded.current_session == outer
    assert embedded.current_session is None


async def test_an_automatic_session_that_has_ended_makes_no_other(server: Running) -> None:
    async with connect(server.url) as client:
        auto = client.auto_session(metadata={"test": "auto"})

        async def use() -> None:
            with suppress(NoCurrentSession):
                await auto.session()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(use)
            await anyio.lowlevel.checkpoint()
            await auto.end()
        assert await open_sessions_of(client, "auto") == []
        with pytest.raises(NoCurrentSession):
            await auto.session()


async def test_another_automatic_session_is_refused_while_one_is_in_force(
    embedded: Client,
) -> None:
    async with embedded.auto_session("one") as auto:
        assert embedded.auto_session() is embedded.auto_session("one") is auto
        with pytest.raises(InvalidArgument):
            embedded.auto_session("other")
    async with embedded.auto_session("other") as other:
        assert (await other.session()).name == "other"
