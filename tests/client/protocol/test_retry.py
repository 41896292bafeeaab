"""Lost answers and lost servers: a call is repeated, given up, or reported, and never runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from support.gateway_process import JSON, Running, kill, service, serving, toml
from support.selection import matrix
from support.task_client import Gate
from support.waiting import until

from statehold.client import Client, Session, connect
from statehold.client.errors import (
    OutcomeUnknown,
    ServerUnreachable,
    SessionNotFound,
    StateConflict,
    ToolFailed,
)
from statehold.client.transport.http import HttpTransport

ABSENT: Final = "sh_00000000000000000000000000"


class Relay:
    """Forwards requests to a server. For the next `lose` requests the server runs them, but the answer is lost."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lose = 0
        self.answered = 0
        """The answers, or parts of them, that passed."""
        self.then: int | None = None
        """The port to which requests go after a lost answer."""
        self.on_loss: Callable[[], object] = lambda: None

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass, read, ours, False, tasks.cancel_scope)
                tasks.start_soon(self._pass, theirs, write, True, tasks.cancel_scope)
        finally:
            write.close()
            ours.close()

    async def _pass(
        self,
        read: asyncio.StreamReader,
        write: asyncio.StreamWriter,
        answers: bool,
        scope: anyio.CancelScope,
    ) -> None:
        while data := await read.read(65536):
            if answers and self.lose:
                self.lose -= 1
                self.port = self.then or self.port
                self.on_loss()
                break
            self.answered += answers
            write.write(data)
        scope.cancel()


@pytest.fixture(scope="module")
def port(server: Running) -> int:
    return int(server.url.rpartition(":")[2])


async def test_an_answer_that_is_lost_is_asked_for_again(port: int) -> None:
    relay = Relay(port)
    async with (
        relay.run() as url,
        connect(url) as client,
        client.session(services=["quick"]) as s,
    ):
        relay.lose = 3
        assert (await s.call("inc")).text == "1"
        assert (await s.call("inc")).text == "2"
        relay.lose = 1
        with pytest.raises(ToolFailed):
            await s.call("fail")
        relay.lose = 1
        assert (await s.info()).in_flight == 0
        page = await s.history(kind="call")
        assert [entry.tool for entry in page.entries] == ["inc", "inc", "fail"]


async def test_a_change_is_made_once_when_its_answer_is_lost(port: int) -> None:
    relay = Relay(port)

    def lose_answers() -> int:
        relay.lose = 2
        return relay.lose

    async with relay.run() as url, connect(url) as client:
        assert lose_answers()
        s = await client.create(metadata={"test": "lost answers"})
        assert await ids(client, "lost answers") == [s.id]
        assert lose_answers()
        assert await s.state.update({"n": 1}) == 1
        assert s.state.version == 1
        assert lose_answers()
        await s.note("user", "once")
        assert [entry.kind for entry in (await s.history(kind="message")).entries] == ["message"]
        assert lose_answers()
        children = await s.fork(2)
        assert len({child.id for child in children}) == 2
        assert lose_answers()
        with pytest.raises(StateConflict):
            await s.state.update({"n": 2}, if_version=7)
        assert (await s.state.get("/n"), s.state.version) == (1, 1)
        for each in (s, *children):
            await each.close()
            assert lose_answers()
            await each.delete()
        assert await ids(client, "lost answers") == []
        assert relay.lose == 0


async def ids(client: Client, test: str) -> list[str]:
    return [each.session_id for each in await client.list_sessions(metadata={"test": test})]


async def test_the_outcome_of_a_call_is_unknown_when_its_process_is_gone(
    port: int, config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as other:
        relay = Relay(port)
        async with relay.run() as url, connect(url) as client:
            relay.lose, relay.then = 1, int(other.url.rpartition(":")[2])
            with pytest.raises(OutcomeUnknown):
                await client.create(metadata={"test": "the next process"})
            # The next process answers that it is another one, and then records the operations that it gets itself.
            sessions = [await client.create(metadata={"test": "the next process"})]
            relay.lose = 1
            sessions.append(await client.create(metadata={"test": "the next process"}))
            assert set(await ids(client, "the next process")) == {s.id for s in sessions}


async def create(client: Client) -> object:
    return await client.create(metadata={"test": "the next server"})


async def fork(client: Client) -> object:
    return await client.calls.call(ABSENT, "session_fork", {})


async def call(client: Client) -> object:
    return await client.calls.call(ABSENT, "inc", {})


async def is_busy(session: Session) -> bool:
    return (await session.info()).in_flight > 0


async def is_ending(url: str) -> bool:
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{url}/readyz")).status_code != 200


@pytest.mark.parametrize("request_of", matrix(create, call, fork))
async def test_a_request_that_an_ending_server_refuses_is_sent_to_the_next_one(
    request_of: Callable[[Client], Awaitable[object]],
    port: int,
    config_file: Path,
    tmp_path: Path,
) -> None:
    with serving(config_file, tmp_path) as ending:
        relay = Relay(int(ending.url.rpartition(":")[2]))
        async with relay.run() as url, connect(url) as client, connect(ending.url) as busy:
            session, answers = await busy.create(services=["quick"]), list[object]()

            async def send() -> None:
                try:
                    answers.append(await request_of(client))
                except SessionNotFound as error:
                    answers.append(error)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(session.call, "slow", seconds=30))
                    await until(lambda: is_busy(session))
                    ending.process.send_signal(signal.SIGTERM)
                    await until(lambda: is_ending(ending.url))
                    before = relay.answered
                    tasks.start_soon(send)
                    await until(lambda: relay.answered > before)
                    assert not answers
                    relay.port = port
                    await until(lambda: answers)
                    tasks.cancel_scope.cancel()


async def test_a_run_ends_once_when_the_process_that_stored_its_end_is_killed(
    config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as first, serving(config_file, tmp_path) as second:
        relay = Relay(int(first.url.rpartition(":")[2]))
        relay.then, relay.on_loss = int(second.url.rpartition(":")[2]), partial(kill, first)
        async with relay.run() as url, connect(url) as client:
            s = await client.create()
            async with s.run("shop") as run:
                relay.lose = 1
            assert (relay.lose, run.status) == (0, "completed")
            [entry] = (await s.history(kind="run")).entries
            assert (entry.run_id, entry.status, entry.at) == ("shop", "completed", run.started_at)
            assert entry.ended_at == run.ended_at is not None
            await s.close()


async def test_a_start_whose_answer_is_lost_starts_one_call(port: int) -> None:
    relay = Relay(port)
    async with (
        relay.run() as url,
        connect(url) as client,
        client.session(services=["quick"]) as s,
    ):
        relay.lose = 2
        task = await s.start("inc")
        assert relay.lose == 0
        relay.lose = 1
        assert (await task).text == "1"
        assert [entry.tool for entry in (await s.history(kind="call")).entries] == ["inc"]


@pytest.mark.parametrize("is_start_lost", matrix(True, False))
async def test_a_task_ends_with_its_own_result_though_its_server_was_killed(
    tmp_path: Path, is_start_lost: bool
) -> None:
    config, log = tmp_path / "statehold.toml", tmp_path / "log"
    gate, data = Gate(tmp_path / "gate"), tmp_path / "data"
    config.write_text(toml({"services": {"quick": service("asking", "--log", str(log))}}))
    with serving(config, data) as first, serving(config, data) as second:
        relay = Relay(int(first.url.rpartition(":")[2]))
        relay.then, relay.on_loss = int(second.url.rpartition(":")[2]), partial(kill, first)
        async with relay.run() as url, connect(url) as client:
            s = await client.create(services=["quick"])
            relay.lose = int(is_start_lost)
            task = await s.start("hold", fifo=str(gate.path))
            assert task.id.startswith(f"{s.id}.")
            relay.lose = int(not is_start_lost)
            assert await task.status() == "working"
            texts: list[str] = []

            async def wait() -> None:
                texts.append((await task).text)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await gate.release()
            assert texts == [(await s.task(task.id)).text] == ["held"]
            await s.close()
    assert first.process.returncode == -signal.SIGKILL
    assert [json.loads(line)["tool"] for line in log.read_text().splitlines()] == ["hold"]


@pytest.mark.thorough
async def test_no_call_runs_twice_on_several_processes_behind_one_address(
    port: int, config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as other:
        here, there = f"http://127.0.0.1:{port}/mcp", f"{other.url}/mcp"
        async with connect(here) as client, connect(there) as second:
            channel = client.requests.transport
            assert isinstance(channel, HttpTransport)
            turns = cycle((there, here))
            send = channel.request

            async def request(*arguments: Any, **more: Any) -> JSON:
                channel.url = next(turns)
                return await send(*arguments, **more)

            channel.request = request
            for _ in range(3):
                await client.create(metadata={"test": "many processes"})
            channel.request = send
            channel.url = here
            sessions = [await ids(each, "many processes") for each in (client, second)]
            assert sum(map(len, sessions)) == 3


async def test_a_server_that_is_still_starting_is_waited_for(port: int) -> None:
    relay = Relay(port)
    async with relay.run() as url:
        relay.lose = 3
        with anyio.fail_after(20):
            async with connect(url) as client:
                await client.list_sessions()
        assert relay.lose == 0


async def test_a_server_that_stays_away_is_given_up(port: int) -> None:
    relay = Relay(port)
    async with relay.run() as url, connect(url, retry_seconds=0.3) as client:
        s = await client.create(services=["quick"])
        relay.lose = 10_000
        with anyio.fail_after(20):
            with pytest.raises(OutcomeUnknown):
                await s.call("inc")
            with pytest.raises(ServerUnreachable):
                await s.info()
        relay.lose = 0
        await s.close()


async def test_a_closed_client_answers_its_waiting_callers(server: Running) -> None:
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
