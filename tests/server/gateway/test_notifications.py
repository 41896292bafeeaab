"""People who have no console open are told that an agent asks: by a command, and at an address."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import anyio
import pytest
from support.gateway_process import JSON, service
from support.waiting import until

from statehold.client import connect
from statehold.server.config.load import load
from statehold.server.config.sections import NotifySettings
from statehold.server.gateway.commands import MAX_AT_ONCE, Notifications

ASK: JSON = {"wait_seconds": 0}


class Receiver:
    """A server on loopback that answers each request with a status, and keeps the bodies."""

    def __init__(self, status: bytes) -> None:
        self.bodies: list[JSON] = []
        self._status = status

    async def answer(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        head = await read.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r")[0])
        self.bodies.append(json.loads(await read.readexactly(size)))
        write.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self._status)
        await write.drain()
        write.close()


@pytest.mark.parametrize("status", [b"204 No Content", b"500 Internal Server Error"])
async def test_each_request_is_told_once_to_the_command_and_to_the_address(
    tmp_path: Path, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, file = Receiver(status), tmp_path / "notices"
    program = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read() + '\\n')"
    async with await asyncio.start_server(receiver.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = load(
            flags={
                "notify": {
                    "command": [sys.executable, "-c", program],
                    "url": f"http://127.0.0.1:{port}/hook?key=secret-of-the-hook",
                },
                "services": {"quick": service("quick")},
            },
            environ={},
        )
        async with connect(config=config) as client:
            session = await client.create("shop")
            for reason in ("type the code", "type the code", "password=hunter22 is wrong"):
                arguments = {"session_id": session.id, "reason": reason, **ASK}
                await client.call_tool("session_request_human", arguments)
            assert len(receiver.bodies) < 3

            def is_told() -> bool:
                return file.exists() and len(file.read_text().splitlines()) == 1

            await until(is_told)
            await until(lambda: len(receiver.bodies) == 1)
    (told,) = map(json.loads, file.read_text().splitlines())
    assert told == receiver.bodies[0]
    assert (told["event"], told["session_id"], told["name"]) == (
        "human_requested",
        session.id,
        "shop",
    )
    assert told["reason"] == "type the code"
    assert session.id in told["address"] or "shop" in told["address"]
    assert "secret-of-the-hook" not in caplog.text
    assert ("answered 500" in caplog.text) == status.startswith(b"500")


async def test_many_requests_of_one_owner_start_few_commands_and_leave_room_for_others(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    program = f"import sys, time; open({str(told)!r}, 'a').write(sys.stdin.read() + '\\n'); time.sleep(60)"
    command = [sys.executable, "-S", "-E", "-c", program]
    notifications = Notifications(NotifySettings(command=command, seconds=60), shared=True)

    def tellers() -> list[str]:
        return told.read_text().splitlines() if told.exists() else []

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(notifications.send, "mallory", {"by": "mallory"})
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(notifications.send, "alice", {"by": "alice"})
        await until(lambda: any("alice" in teller for teller in tellers()))
        assert 1 < len(tellers()) <= MAX_AT_ONCE
        tasks.cancel_scope.cancel()
