"""Wrong tokens cost time and are logged, and a right one is not slowed down. Clients cannot fill the log."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp_types import jsonrpc_message_adapter
from support.gateway_process import Running, serving, statehold, toml
from support.token_file import write_tokens
from support.waiting import until

from statehold.access.refusals import FORGET_SECONDS, LONGEST_SECONDS, Backoff
from statehold.server.process.logs import ClientMistakes, TextLines

WAYS: list[tuple[str, str]] = []
ALICE, WRONG = "alice-token-0123456789", "wrong-token-0123456789"


class Time:
    """A clock that its sleepers advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def backoff(self) -> Backoff:
        return Backoff(clock=lambda: self.now, sleep=self.sleep)


async def test_each_wrong_token_of_a_network_delays_the_next_one_longer() -> None:
    time = Time()
    backoff = time.backoff()
    await backoff.hold("192.0.2.1")
    assert time.slept == []
    for _ in range(12):
        backoff.fail("192.0.2.1")
        await backoff.hold("192.0.2.1")
    assert time.slept == sorted(time.slept)
    assert time.slept[0] < time.slept[3] < time.slept[-1] == LONGEST_SECONDS
    backoff.fail("2001:db8::1")
    count = len(time.slept)
    for address in ("192.0.2.2", "2001:db8:0:1::1", "fe80::1%eth0", ""):
        await backoff.hold(address)
    assert len(time.slept) == count
    for same in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8::3%eth0"):
        await backoff.hold(same)
        assert time.slept.pop() == time.slept[0]
    await backoff.hold("::ffff:192.0.2.1")
    assert time.slept[-1] == LONGEST_SECONDS
    time.now += FORGET_SECONDS
    await backoff.hold("192.0.2.1")
    assert len(time.slept) == count + 1


def test_wrong_tokens_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    backoff = time.backoff()
    for _ in range(100):
        backoff.fail("192.0.2.1")
        time.now += 0.2
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "192.0.2.1" in lines[0]
    assert re.search(r"\(5\d more", lines[1])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens, config = folder / "tokens", folder / "statehold.toml"
    write_tokens(tokens, f"{ALICE} alice\n")
    services = {"browser": {"disabled": True}}
    config.write_text(toml({"server": {"tokens": str(tokens)}, "services": services}))
    with serving(config, folder / "data") as running:
        yield running


async def test_a_server_logs_wrong_tokens_without_the_token(guarded: Running) -> None:
    headers = {"authorization": f"Bearer {WRONG}"}
    async with httpx2.AsyncClient(base_url=guarded.url, timeout=60) as raw:
        assert (await raw.post("/mcp", headers=headers)).status_code == 401
    await until(lambda: "wrong token from 127.0.0.1" in guarded.log)
    assert guarded.log.count("wrong token from 127.0.0.1") == 1
    assert WRONG not in guarded.log


async def test_malformed_requests_log_little(guarded: Running) -> None:
    host, _, port = guarded.url.removeprefix("http://").rpartition(":")
    for number in range(60):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"x\r\n\r\n" if number % 2 else b"GET /%ff\xff HTTP/1.1\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 400")
    assert 1 <= guarded.log.count("Invalid HTTP request") <= 6


def test_unfinished_requests_at_a_stop_leave_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"timeouts": {"close_grace": 0.1}}))
    with serving(config, tmp_path / "data") as running, ExitStack() as stack:
        host, _, port = running.url.removeprefix("http://").rpartition(":")
        for _ in range(5):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            head = f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000\r\n"
            client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            # The server asks for the body once it reads it.
            assert client.recv(100).startswith(b"HTTP/1.1 100")
        assert running.stop() == 0
    assert "Traceback" not in running.log


def test_a_message_of_a_library_is_written_once_in_a_while() -> None:
    now = 0.0
    mistakes = ClientMistakes(lambda: now)

    def written(name: str, text: str = "Invalid HTTP request received.") -> str | None:
        record = logging.LogRecord(name, logging.WARNING, "", 0, text, (), None)
        return record.getMessage() if mistakes.filter(record) else None

    assert written("uvicorn.error") == "Invalid HTTP request received."
    assert [written("uvicorn.error") for _ in range(5)] == [None] * 5
    assert written("uvicorn.error", "Another.") == "Another."
    assert written("statehold.server") is not None
    assert written("statehold.server") is not None
    now = 1.5
    assert written("uvicorn.error") == "Invalid HTTP request received. (5 more before)"


def test_a_library_quotes_no_malformed_message_in_the_log() -> None:
    with pytest.raises(ValueError, match="Invalid JSON") as caught:
        jsonrpc_message_adapter.validate_json('{"token": hunter2}')
    exception = (caught.type, caught.value, caught.tb)
    name, message = "mcp.client.streamable_http", "Error parsing SSE message"
    record = logging.LogRecord(name, logging.ERROR, "", 0, message, (), exception)
    assert ClientMistakes().filter(record)
    assert TextLines().format(record).endswith(message)


def test_a_port_in_use_says_that_a_statehold_has_it(guarded: Running, tmp_path: Path) -> None:
    port = guarded.url.rpartition(":")[2]
    command = [*statehold(), "serve", "--data", str(tmp_path), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert f"another Statehold (pid {guarded.process.pid})" in done.stderr


async def test_livez_and_health_need_no_token(guarded: Running) -> None:
    async with httpx2.AsyncClient(base_url=guarded.url, timeout=60) as raw:
        live = (await raw.get("/livez")).json()
        assert live == {"status": "ok", "server": "statehold", "pid": guarded.process.pid}
        assert (await raw.get("/health")).status_code == 200
