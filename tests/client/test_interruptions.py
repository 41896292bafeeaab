"""Cancellation, interrupts and forks in the middle of an operation: nothing is left behind, and nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.lowlevel
import pytest
from front import JSON, Running, toml

from statehold.client import Client, Session, connect, sync
from statehold.client.errors import (
    InvalidArgument,
    NoCurrentSession,
    NotAllowed,
    OutcomeUnknown,
    ServerUnreachable,
    ServiceNotBound,
    SessionClosed,
    SessionNotFound,
)
from statehold.client.sync.portal import in_thread

Connect: TypeAlias = Callable[..., Client]


async def _left(client: Client, test: str) -> list[str]:
    return [found.session_id for found in await client.list_sessions(metadata={"test": test})]


async def test_what_is_cancelled_while_it_is_made_is_not_left(server: Running) -> None:
    async with connect(server.url) as client, client.session() as parent:
        for number in range(12):
            with anyio.move_on_after(0.0007 * number):
                async with client.session(f"left-{number}", metadata={"test": "cancelled"}):
                    await anyio.sleep_forever()
        assert await _left(client, "cancelled") == []
        async with client.session() as other:
            for number in range(6):
                with anyio.move_on_after(0.001 * number):
                    await other.fork(2)
        children = [s for s in await client.list_sessions() if s.parent == other.id]
        assert children == []
        assert parent.is_open


FORKED = """
import multiprocessing, os, sys
from statehold.client.sync import connect
client = connect({url!r}).__enter__()
session = client.session().__enter__()
child = os.fork()
if child == 0:
    try:
        client.stats()
    except RuntimeError as error:
        print("child:", error, flush=True)
    with connect({url!r}) as mine:
        print("child:", mine.get(session.id).id == session.id, flush=True)
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]), flush=True)
    pool.close()
    pool.join()
print("parent:", client.get(session.id).id == session.id, flush=True)
"""


def test_a_forked_process_ends_and_may_connect_again(server: Running) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", FORKED.format(url=server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "child: the client was opened before a fork: connect again in this process",
        "child: True",
        "[1, 2]",
        "parent: True",
    ]


def test_callbacks_that_call_back_do_not_wait_for_one_another(server: Running) -> None:
    many, told, lock = 50, list[int](), threading.Lock()
    with sync.connect(server.url) as client, client.session(services=["quick"]) as s:
        gate = threading.Barrier(many)

        def called(progress: float, total: float | None, message: str | None) -> None:
            gate.wait(30)
            s.info()
            with lock:
                told.append(1)

        async def call(progress: float) -> None:
            await in_thread(called)(progress, None, None)

        async def all_at_once() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(many):
                    tasks.start_soon(call, 1.0)

        client.portal.run(all_at_once)
    assert len(told) == many


async def test_a_client_that_is_closed_answers_who_waits_for_the_server(server: Running) -> None:
    client = await connect(server.url).__aenter__()
    session = await client.create()
    caught: list[BaseException] = []
    client.requests.transport.url = "http://127.0.0.1:1/mcp"  # pyright: ignore[reportAttributeAccessIssue]

    async def call() -> None:
        try:
            await session.info()
        except (OutcomeUnknown, ServerUnreachable) as error:
            caught.append(error)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await client.aclose()
    assert len(caught) == 1
    async with connect(server.url) as again:
        await (await again.get(session.id)).close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
async def test_what_is_no_json_is_refused_by_every_way_in(way: Connect, value: object) -> None:
    async with way() as client, client.session(services=["quick"]) as s:
        await s.state.update({"price": 3.5})
        with anyio.fail_after(20), pytest.raises(InvalidArgument):
            await s.state.update({"price": value})
        with anyio.fail_after(20), pytest.raises(InvalidArgument):
            await s.call("echo", price=[{"deep": value}])
        assert await s.state.get() == {"price": 3.5}
        assert (await s.call("inc")).text == "1"


async def test_a_merge_with_a_session_that_is_not_there_leaves_the_parent_open(
    way: Connect,
) -> None:
    async with way() as client:
        async with client.session(metadata={"test": "merge"}) as s:
            with pytest.raises(SessionNotFound):
                await s.merge(["sh_" + "a" * 26])
            assert s.is_open
            await s.state.update({"n": 1})
        assert [i for i in await _left(client, "merge") if i == s.id] == []


async def test_a_block_that_was_left_is_current_nowhere(way: Connect) -> None:
    async with way() as client:

        async def each() -> AsyncGenerator[Session]:
            async with client.session() as inner:
                yield inner

        async with client.session() as outer:
            inside = each()
            async for _ in inside:
                break
            await inside.aclose()
            assert client.current_session == outer
            first, second = client.session(), client.session()
            await first.__aenter__()
            b = await second.__aenter__()
            await first.__aexit__(None, None, None)
            assert client.current_session == b
            await second.__aexit__(None, None, None)
            assert client.current_session == outer
        assert client.current_session is None


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
        assert await _left(client, "auto") == []
        with pytest.raises(NoCurrentSession):
            await auto.session()


async def test_another_automatic_session_is_refused_while_one_is_in_force(way: Connect) -> None:
    async with way() as client:
        async with client.auto_session("one") as auto:
            assert client.auto_session() is client.auto_session("one") is auto
            with pytest.raises(InvalidArgument):
                client.auto_session("other")
        async with client.auto_session("other") as other:
            assert (await other.session()).name == "other"


async def test_what_cannot_be_read_is_of_the_same_class_as_what_cannot_be_called(
    way: Connect,
) -> None:
    async with way() as client, client.session(services=["quick"]) as s:
        with pytest.raises(ServiceNotBound) as caught:
            await s.read_resource("memory://x", service="other")
        assert caught.value.recovery not in caught.value.message
        await s.close()
        with pytest.raises(SessionClosed):
            await s.read_resource("state")


async def test_a_toolset_that_is_not_served_is_named(
    config_file: Path, tmp_path: Path, settings: JSON
) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text(toml({**settings, "toolsets": ["core", "lifecycle"]}))
    async with connect(config=plain) as client, client.session() as s:
        for asked in (s.export, s.delete, client.stats):
            with pytest.raises(NotAllowed, match="does not offer") as caught:
                await asked()
            assert "admin" in caught.value.recovery
        assert s.is_open
