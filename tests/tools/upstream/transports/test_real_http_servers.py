"""Real HTTP servers that differ from the SDK's examples: one that is mounted in Starlette, and the official npm server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import pytest
from callers import UPSTREAMS, Caller, text_of, view
from support.listening import run_listening
from support.selection import matrix

from statehold.sessions.errors import ConnectionLost
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

pytestmark = [pytest.mark.thorough, pytest.mark.peer]


@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_a_server_that_is_mounted_in_starlette_is_used(era: str) -> None:
    with run_listening([sys.executable, str(UPSTREAMS / "mounted.py")], timeout=60) as port:
        config = UpstreamConfig.model_validate({"url": f"http://127.0.0.1:{port}/mcp", "era": era})
        service = UpstreamService("mounted", config)
        assert [spec.name for spec in await service.tools()] == ["inc"]
        connection = await service.open(view(), None)
        for number in (1, 2):
            assert text_of(await connection.call("inc", {}, Caller())) == str(number)
        await connection.aclose()


@contextmanager
def running(command: list[str], port: int) -> Generator[None]:
    with subprocess.Popen(
        command,
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert any(" port " in line for line in process.stderr)
            yield
        finally:
            process.kill()


async def test_the_official_server_is_known_to_have_lost_its_sessions_when_it_was_restarted(
    everything_command: list[str],
) -> None:
    """It answers 400."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*everything_command[:-1], "streamableHttp"]
    service = UpstreamService("all", UpstreamConfig(url=f"http://127.0.0.1:{port}/mcp"))
    with running(command, port):
        connection = await service.open(view(), None)
        assert "Echo: one" in text_of(await connection.call("echo", {"message": "one"}, Caller()))
    with running(command, port):
        with anyio.fail_after(60), pytest.raises(ConnectionLost):
            await connection.call("echo", {"message": "two"}, Caller())
        assert connection.lost.is_set()
        await connection.aclose()
        connection = await service.open(view(), None)
        assert "Echo: two" in text_of(await connection.call("echo", {"message": "two"}, Caller()))
        await connection.aclose()
