"""The local socket of a process: one line that names a verb, then a connection that the handler of the verb owns."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from statehold.server.sockets.local_socket import local_socket, send_content
from statehold.server.sockets.request import (
    Refused,
    Unanswered,
    Unreachable,
    find_socket,
    send_request,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "nodes"
    path.mkdir(mode=0o700)
    return path


def connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(find_socket(folder, "n1"))
    connection.setblocking(False)
    return connection


async def received(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    with anyio.fail_after(10):
        while len(data) < size and (part := await loop.sock_recv(connection, size - len(data))):
            data += part
    return data


async def answer(members: dict[str, Any], connection: socket.socket) -> None:
    with closing(connection):
        await send_content(connection, members)


async def ask(folder: Path, verb: str, seconds: float = 10.0, **members: Any) -> Any:
    def send() -> Any:
        exchange = send_request(folder, "n1", verb, members, seconds=seconds)
        exchange.connection.close()
        return exchange.content

    return await anyio.to_thread.run_sync(send)


async def test_bytes_behind_the_first_line_are_for_the_handler(folder: Path) -> None:
    """As those of an HTTP request that is sent without a wait for an answer."""

    async def upper(members: dict[str, Any], connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        with closing(writer):
            writer.write((await reader.readexactly(members["size"])).upper())
            await writer.drain()

    async with local_socket(folder, "n1") as local, local.serve({"upper": upper}):
        with closing(connected(folder)) as connection:
            loop = asyncio.get_running_loop()
            first = {"verb": "upper", "size": 9, "filler": "x" * 300_000}
            await loop.sock_sendall(connection, json.dumps(first).encode() + b"\nGET / h\n")
            await loop.sock_sendall(connection, b"\n")
            assert await received(connection, 9) == b"GET / H\n\n"


async def test_verbs_are_served_while_their_block_runs(folder: Path) -> None:
    async with local_socket(folder, "n1") as local, local.serve({"echo": answer}):
        async with local.serve({"other": answer}):
            assert await ask(folder, "echo", n=1) == {"n": 1}
            assert await ask(folder, "other", n=2) == {"n": 2}
        assert await ask(folder, "echo", n=1) == {"n": 1}
        with pytest.raises(Refused) as error_info:
            await ask(folder, "other")
        assert error_info.value.code == "unknown_verb"


async def test_a_request_waits_for_its_verb_while_the_process_starts(folder: Path) -> None:
    """Otherwise a command would start a second server beside it."""
    answers: list[Any] = []

    async def request() -> None:
        answers.append(await ask(folder, "echo", n=1))

    async with (
        local_socket(folder, "n1") as local,
        local.serve({"early": answer}, is_starting=True),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(request)
        assert await ask(folder, "early", n=2) == {"n": 2}
        assert answers == []
        async with local.serve({"echo": answer}):
            with anyio.fail_after(10):
                while not answers:
                    await anyio.lowlevel.checkpoint()
    assert answers == [{"n": 1}]


async def test_the_end_of_the_block_cancels_its_handlers_and_waits_for_them(folder: Path) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def wait(members: dict[str, Any], connection: socket.socket) -> None:
        with closing(connection):
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

    async with local_socket(folder, "n1") as local:
        async with local.serve({"wait": wait}):
            with closing(connected(folder)) as connection:
                await asyncio.get_running_loop().sock_sendall(connection, b'{"verb": "wait"}\n')
                await started.wait()
        assert ended.is_set()


async def test_a_handler_that_fails_ends_its_connection_only(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(members: dict[str, Any], connection: socket.socket) -> None:
        connection.close()
        raise RuntimeError

    async with local_socket(folder, "n1") as local, local.serve({"fail": fail, "echo": answer}):
        with pytest.raises(Unreachable, match="hung up"):
            await ask(folder, "fail")
        assert await ask(folder, "echo") == {}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_silent_connections_are_closed_and_hold_up_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.server.sockets.local_socket.READ_SECONDS", 0.2)
    monkeypatch.setattr("statehold.server.sockets.local_socket.MAX_OPENINGS", 2)
    async with local_socket(folder, "n1") as local, local.serve({"echo": answer}):
        silent = [connected(folder) for _ in range(3)]
        await asyncio.get_running_loop().sock_sendall(silent[1], b'{"verb"')
        assert await ask(folder, "echo") == {}
        for connection in silent:
            assert await received(connection, 1) == b""
            connection.close()


async def test_a_process_that_gives_no_answer_is_given_up(folder: Path) -> None:
    async def keep_silent(members: dict[str, Any], connection: socket.socket) -> None:
        with closing(connection):
            await asyncio.get_running_loop().sock_recv(connection, 1)

    async with local_socket(folder, "n1") as local, local.serve({"wait": keep_silent}):
        with pytest.raises(Unanswered, match="within"):
            await ask(folder, "wait", seconds=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    [
        *(b"no JSON\n", b"[]\n", b'{"content": 1}\n', b'{"error": 1}\n'),
        # The answer of a server from before 0.1, which knows no verbs.
        b'{"error": {"code": "invalid_argument", "message": "tool: field required."}}\n',
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error(folder: Path, line: bytes) -> None:
    async def say(members: dict[str, Any], connection: socket.socket) -> None:
        with closing(connection):
            await asyncio.get_running_loop().sock_sendall(connection, line)

    async with local_socket(folder, "n1") as local, local.serve({"say": say}):
        with pytest.raises(Unanswered):
            await ask(folder, "say")


async def test_without_a_folder_nobody_connects() -> None:
    async with local_socket(None, "n1") as local, local.serve({"echo": answer}):
        assert local.path is None


@pytest.mark.thorough
def test_an_answer_of_many_pieces_is_read_as_one(folder: Path) -> None:
    """And what follows it is kept for the protocol that begins there."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(1000)
            for part in (b'{"content": {"text": "', b"x" * 200_000, b'"}}\nHTTP'):
                connection.sendall(part)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(folder / "n1.sock"))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        exchange = send_request(folder, "n1", "echo", {}, seconds=10)
        thread.join()
    exchange.connection.close()
    assert (len(exchange.content["text"]), exchange.received[:4]) == (200_000, b"HTTP")
