"""Strangers that keep requests unfinished, under a limit of open files: the store and its callers notice nothing."""

from __future__ import annotations

import resource
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from support.gateway_process import STATEHOLD, Way, opened_session, service, structured, toml
from support.token_file import write_tokens

TOKEN = "alice-token-0123456789"
FILES, STRANGERS, CALLS = 300, 330, 6
WAYS: list[tuple[str, str]] = []


def limited(config: Path, data: Path) -> subprocess.Popen[bytes]:
    arguments = ["serve", "--config", str(config), "--data", str(data), "--port", "0"]
    return subprocess.Popen(
        ["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", *STATEHOLD, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


@pytest.mark.thorough
@pytest.mark.timeout(90)
async def test_unfinished_requests_of_strangers_cost_no_call(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= 2 * STRANGERS, (soft, hard)
    tokens = tmp_path / "tokens"
    write_tokens(tokens, f"{TOKEN} alice\n")
    config = tmp_path / "statehold.toml"
    settings = {"server": {"tokens": str(tokens)}, "services": {"asking": service("asking")}}
    config.write_text(toml(settings))
    process = limited(config, tmp_path / "data")
    assert process.stderr is not None
    try:
        line = b""
        while b"listens on" not in line:
            line = process.stderr.readline()
            assert line, "ended"
        url = line.decode().rpartition(" ")[2].strip().removesuffix("/mcp")
        await attacked(url, Way("http", "modern", config, tmp_path, url=url))
    finally:
        process.terminate()
        log = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert "Too many open files" not in log
    assert "out of system resource" not in log


async def attacked(url: str, way: Way) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    begun = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\nx".encode()
    headers = {"authorization": f"Bearer {TOKEN}"}
    with ExitStack() as stack:
        async with way.connect(headers=headers) as client:
            session = await opened_session(client)
            for number in range(STRANGERS):
                stranger = socket.create_connection((host, int(port)), timeout=20)
                stack.enter_context(stranger)
                # One without a whole head is asked for no token.
                stranger.sendall(begun if number % 2 else begun[:40])
            # A new connection is accepted after all those before it.
            async with httpx2.AsyncClient(base_url=url, timeout=60) as fresh:
                assert (await fresh.get("/livez")).status_code == 200
            for number in range(1, CALLS + 1):
                result = await client.call_tool("inc", {"session_id": session})
                assert structured(result)["count"] == number
            await opened_session(client)
            assert await journaled(client, session) == CALLS


async def journaled(client: Client, session: str) -> int:
    """Return how many calls of `inc` the journal of a session holds."""
    arguments = {"session_id": session, "tool": "inc", "last": 100}
    return len(structured(await client.call_tool("session_history", arguments))["entries"])
