"""Failures between the client and a server: lost answers, no server, the wrong server, and refused access."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from front import JSON, Running, serving, toml

from statehold.client import Answer, Client, Question, connect
from statehold.client.errors import (
    NotAllowed,
    OutcomeUnknown,
    ServerUnreachable,
    StateConflict,
    ToolFailed,
)
from statehold.client.protocol import acknowledgements
from statehold.client.protocol.elicitation import AnswerLike
from statehold.client.transport.http import HttpTransport

Connect: TypeAlias = Callable[..., Client]
TOKEN = "T0ken-of-the-tests-0123456789abcdef"


class Relay:
    """Forwards requests to a server. For the next `lose` requests the server runs them, but the answer is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.lose = 0
        self.then: int | None = None
        """The port to which requests go after a lost answer."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
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
                self._port = self.then or self._port
                break
            write.write(data)
        scope.cancel()


@pytest.fixture(scope="module")
def port(server: Running) -> int:
    return int(server.url.rpartition(":")[2])


async def test_an_answer_that_is_lost_is_asked_for_again(port: int) -> None:
    relay = Relay(port)
    async with (
        relay.running() as url,
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


async def test_what_changes_something_is_done_once_when_its_answer_is_lost(port: int) -> None:
    relay = Relay(port)

    def lost() -> int:
        relay.lose = 2
        return relay.lose

    async with relay.running() as url, connect(url) as client:
        assert lost()
        s = await client.create(metadata={"test": "lost answers"})
        assert await ids(client, "lost answers") == [s.id]
        assert lost()
        assert await s.state.update({"n": 1}) == 1
        assert s.state.version == 1
        assert lost()
        await s.note("user", "once")
        assert [entry.kind for entry in (await s.history(kind="message")).entries] == ["message"]
        assert lost()
        children = await s.fork(2)
        assert len({child.id for child in children}) == 2
        assert lost()
        with pytest.raises(StateConflict):
            await s.state.update({"n": 2}, if_version=7)
        assert (await s.state.get("/n"), s.state.version) == (1, 1)
        for each in (s, *children):
            await each.close()
            assert lost()
            await each.delete()
        assert await ids(client, "lost answers") == []
        assert relay.lose == 0


async def ids(client: Client, test: str) -> list[str]:
    return [found.session_id for found in await client.list_sessions(metadata={"test": test})]


async def test_of_a_process_that_is_gone_nobody_knows_what_it_did(
    port: int, config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as other:
        relay = Relay(port)
        async with relay.running() as url, connect(url) as client:
            relay.lose, relay.then = 1, int(other.url.rpartition(":")[2])
            with pytest.raises(OutcomeUnknown):
                await client.create(metadata={"test": "the next process"})
            # The next process answers that it is another one, and then records the operations that it gets itself.
            sessions = [await client.create(metadata={"test": "the next process"})]
            relay.lose = 1
            sessions.append(await client.create(metadata={"test": "the next process"}))
            assert set(await ids(client, "the next process")) == {s.id for s in sessions}


async def test_of_many_processes_behind_one_address_none_is_asked_twice(
    port: int, config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path) as other:
        here, there = f"http://127.0.0.1:{port}/mcp", f"{other.url}/mcp"
        async with connect(here) as client, connect(there) as second:
            channel = client.requests.transport
            assert isinstance(channel, HttpTransport)
            turns = cycle((there, here))
            asked = channel.request

            async def request(*given: Any, **more: Any) -> JSON:
                channel.url = next(turns)
                return await asked(*given, **more)

            channel.request = request
            for _ in range(3):
                await client.create(metadata={"test": "many processes"})
            channel.request = asked
            channel.url = here
            found = [await ids(each, "many processes") for each in (client, second)]
            assert sum(map(len, found)) == 3


async def test_a_server_that_stays_away_is_given_up(port: int) -> None:
    relay = Relay(port)
    async with relay.running() as url, connect(url, retry_seconds=0.3) as client:
        s = await client.create(services=["quick"])
        relay.lose = 10_000
        with anyio.fail_after(20):
            with pytest.raises(OutcomeUnknown):
                await s.call("inc")
            with pytest.raises(ServerUnreachable):
                await s.info()
        relay.lose = 0
        await s.close()


async def test_a_stream_is_read_as_bytes_come() -> None:
    text = "a\u2028b\x85c\x0cd\r\n"
    told: list[float] = []
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": text}}, ensure_ascii=False)
    step = {"progressToken": 1, "progress": 1.5}
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": step})
    events = f": ping\r\n\r\nevent: message\r\ndata: {note}\r\n\r\ndata: {answer}\n\n".encode()

    async def serve(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        await read.readuntil(b"\r\n\r\n")
        write.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for byte in events:
            write.write(bytes([byte]))
            await write.drain()
        write.close()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        channel = HttpTransport(f"http://127.0.0.1:{port}/mcp", {})
        with anyio.fail_after(10):
            found = await channel.request("x", {"_meta": {}}, progress_callback=progress)
        await channel.aclose()
    assert (found, told) == ({"text": text}, [1.5])


async def test_nobody_there_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with anyio.fail_after(10):
        with pytest.raises(ServerUnreachable) as caught:
            async with connect(f"http://127.0.0.1:{port}"):
                pass
    assert caught.value.retryable


async def test_another_server_is_refused(counter_server: Callable[..., str]) -> None:
    url = counter_server("http")
    with pytest.raises(ServerUnreachable, match="no Statehold"):
        async with connect(url):
            pass


@pytest.fixture(scope="module")
def guarded(settings: JSON, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server that wants a token, the session as a header too, and keeps few results of operations."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} alice\n")
    os.chmod(tokens, 0o600)
    config = folder / "statehold.toml"
    server = {"tokens": str(tokens), "session_header": True}
    config.write_text(toml({**settings, "server": server, "history": {"receipts": 25}}))
    with serving(config, folder / "data") as running:
        yield running


async def test_a_token_opens_the_door_and_headers_follow_arguments(guarded: Running) -> None:
    for wrong in (None, "wrong"):
        with pytest.raises(NotAllowed):
            async with connect(guarded.url, token=wrong):
                pass
    async with (
        connect(f"{guarded.url}/mcp/", token=TOKEN) as client,
        client.session(services=["quick"]) as s,
    ):
        assert [(await s.call("inc")).text for _ in range(2)] == ["1", "2"]


async def test_calls_without_end_fit_into_one_session(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "MOST", 20)
    async with connect(guarded.url, token=TOKEN) as client, client.session(services=["quick"]) as s:
        first = await s.call_tool("inc", operation_id="mine")
        for _ in range(70):
            await s.call("inc")
        # The result of an operation id that the caller chose is kept, because the client does not know when it is over.
        assert (await s.call_tool("inc", operation_id="mine")).text == first.text == "1"
        assert (await s.call("inc")).text == "72"


async def test_an_id_of_the_callers_own_is_kept_with_the_session_for_our_tools_too(
    guarded: Running,
) -> None:
    async with connect(guarded.url, token=TOKEN) as client, client.session(services=["quick"]) as s:
        await s.state.update({"log": []})
        given = {"values": "e", "path": "/log/-"}
        first = await s.call_tool("state_update", given, operation_id="mine")
        async with connect(guarded.url, token=TOKEN) as another:
            told = await another.call_tool(
                "state_update", {**given, "session_id": s.id}, operation_id="mine"
            )
        assert told.structured_content == first.structured_content
        assert (await s.state.get()) == {"log": ["e"]}


async def test_a_question_is_answered_declined_or_cancelled(way: Connect) -> None:
    asked: list[Question] = []
    answers: list[AnswerLike] = [{"answer": "42"}, None, Answer("cancel")]

    async def answer(question: Question) -> AnswerLike:
        asked.append(question)
        return answers.pop(0)

    async with way(elicitation_callback=answer) as client, client.session(services=["quick"]) as s:
        said = [(await s.call("ask")).text for _ in range(3)]
        assert ["accept" in said[0], "decline" in said[1], "cancel" in said[2]] == [True] * 3
        assert asked[0].message == "quick asks: What is the answer?"
        assert asked[0].schema is not None
        answers.extend([{"answer": "a"}, {"answer": "b"}])
        assert "b" in (await s.call("ask_twice")).text


async def test_what_a_callback_raises_is_the_callers_own(way: Connect) -> None:
    asked: list[Question] = []

    async def answer(question: Question) -> None:
        asked.append(question)
        raise LookupError("nobody knows")

    async with way(elicitation_callback=answer) as client, client.session(services=["quick"]) as s:
        with pytest.raises(LookupError):
            await s.call("ask_twice")
        assert len(asked) == 1
        # The server no longer waits for an answer.
        assert (await s.info()).in_flight == 0
