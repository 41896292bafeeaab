"""The Host header: accepted hosts and spellings, and refused requests that name two hosts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from support.gateway_process import Running, serving, statehold, toml
from support.waiting import until

from statehold.server.http.host_check import HostCheck

WAYS: list[tuple[str, str]] = []


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("plain")
    config = folder / "statehold.toml"
    config.write_text(
        '[services.browser]\ndisabled = true\n[server]\nallowed_hosts = ["a.example"]'
    )
    with serving(config, folder / "data") as running:
        yield running


async def status(server: Running, target: str, *hosts: str, more: str = "") -> int:
    """Return the status of one raw request."""
    address, _, port = server.url.removeprefix("http://").rpartition(":")
    head = f"GET {target} HTTP/1.1\r\n" + "".join(f"Host: {host}\r\n" for host in hosts) + more
    with anyio.fail_after(10):
        async with await anyio.connect_tcp(address, int(port)) as stream:
            await stream.send(head.encode() + b"\r\n")
            return int((await stream.receive()).split(b" ", 2)[1])


FOREIGN = [
    "localhost#.evil.com",
    "localhost?.evil.com",
    "localhost\\.evil.com",
    "[::1]evil.com",
    "[::1]:80evil.com",
    "[::1",
    "127.0.0.1:evil.com",
    "localhost:80:80",
    "evil.com",
    "a@localhost",
    "localhost/",
    "localhost,evil.com",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_only_a_name_or_an_address_with_a_port_is_a_host(plain: Running, host: str) -> None:
    assert await status(plain, "/livez", host) in (400, 421)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:1", "a.example"]
)
async def test_our_names_are_hosts(plain: Running, host: str) -> None:
    assert await status(plain, "/health", host) == 200


async def test_spaces_around_a_host_do_not_count(plain: Running) -> None:
    assert await status(plain, "/health", "  localhost\t ") == 200


async def test_a_second_host_is_refused(plain: Running) -> None:
    assert await status(plain, "/health", "localhost", "localhost") == 400
    assert await status(plain, "/health", "localhost", "evil.com") == 400
    assert await status(plain, "/health", "evil.com", "localhost") == 400


async def test_a_second_origin_is_refused(plain: Running) -> None:
    two = "Origin: http://localhost\r\nOrigin: http://evil.com\r\n"
    assert await status(plain, "/health", "localhost", more=two) == 403


async def test_a_target_with_a_host_has_to_name_that_of_the_header(plain: Running) -> None:
    assert await status(plain, "http://localhost/health", "localhost") == 200
    assert await status(plain, "http://localhost:80/health", "LOCALHOST:80") == 200
    assert await status(plain, "http://evil.com/health", "localhost") == 400
    assert await status(plain, "http://localhost/health", "evil.com") == 400
    assert await status(plain, "http://evil.com/health", "evil.com") == 421
    assert await status(plain, "http://a@evil.com/health", "localhost") == 400


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost#.evil.com",
        "http://localhost/x",
        "http://a@localhost",
        "http://[::1]evil",
        # A page of any machine; only the Host header may be an address.
        "http://203.0.113.5",
    ],
)
async def test_an_origin_is_a_scheme_and_a_host(plain: Running, origin: str) -> None:
    assert await status(plain, "/health", "localhost", more=f"Origin: {origin}\r\n") == 403


async def test_a_websocket_is_checked_as_a_request_is() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        else:
            await PlainTextResponse("")(scope, receive, send)

    guard = HostCheck(app, hosts=[], origins=[])

    async def sent(*headers: tuple[bytes, bytes]) -> str:
        messages: list[Message] = []

        async def send(message: Message) -> None:
            messages.append(message)

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        await guard({"type": "websocket", "headers": list(headers)}, receive, send)
        return messages[0]["type"]

    ours = (b"host", b"localhost")
    assert await sent(ours) == "websocket.accept"
    assert await sent((b"host", b"evil.com")) == "websocket.close"
    assert await sent(ours, (b"origin", b"http://evil.com")) == "websocket.close"


async def test_a_refusal_is_logged_with_the_address(plain: Running) -> None:
    assert await status(plain, "/health", "log.example\x1b[1m") == 400
    async with httpx2.AsyncClient(base_url=plain.url, timeout=60) as raw:
        refusal = await raw.get("/health", headers={"host": "log.example:8931"})
        assert refusal.status_code == 421
        assert "'log.example:8931' is not in server.allowed_hosts" in refusal.text
        refusal = await raw.get("/health", headers={"origin": "https://log.example"})
        assert refusal.status_code == 403
        assert "'https://log.example' is not in server.allowed_origins" in refusal.text
    reason = r"not in server.allowed_hosts: wrong Host '.*' from 127.0.0.1\b"
    await until(lambda: re.search(reason, plain.log))


async def test_configured_names_are_welcome_too(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    names = {"allowed_hosts": ["mcp.example:*"], "allowed_origins": ["https://app.example"]}
    config.write_text(toml({"server": names}))
    with serving(config, tmp_path / "data") as running:
        async with httpx2.AsyncClient(base_url=running.url, timeout=60) as raw:
            fine = {"host": "mcp.example:8931", "origin": "https://app.example"}
            assert (await raw.get("/health", headers=fine)).status_code == 200
            wrong = {**fine, "origin": "http://app.example"}
            assert (await raw.get("/health", headers=wrong)).status_code == 403
            assert (await raw.get("/health", headers={"host": "example"})).status_code == 421


def test_listening_beyond_this_machine_without_tokens_is_refused(tmp_path: Path) -> None:
    command = [*statehold(), "serve", "--data", str(tmp_path), "--port", "0", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "--token-file" in done.stderr
    assert "Traceback" not in done.stderr
