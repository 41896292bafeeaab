"""Proxies in front: whose X-Forwarded headers are believed, who counts as the client, and who may not go past a proxy."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from support.gateway_process import JSON, Running, modern_call, serving, statehold, toml
from support.selection import matrix
from support.token_file import write_tokens
from support.waiting import until

from statehold.server.http.proxies import TrustedProxies

WAYS: list[tuple[str, str]] = []
TOKEN = "alice-token-0123456789"
ALICE = {"authorization": f"Bearer {TOKEN}"}
WRONG = {"authorization": "Bearer wrong-token-0123456789"}
NAME = "mcp.example.org"

Headers = Sequence[tuple[bytes, bytes]]


@contextmanager
def behind(
    folder: Path, proxies: list[str], host: str = "127.0.0.1", **http: int
) -> Generator[Running]:
    write_tokens(folder / "tokens", f"{TOKEN} alice\n")
    server: JSON = {"tokens": "tokens", "host": host, "trusted_proxies": proxies}
    server["allowed_hosts"] = [NAME]
    config = folder / "statehold.toml"
    services = {"browser": {"disabled": True}}
    config.write_text(toml({"server": server, "http": http, "services": services}))
    with serving(config, folder / "data") as running:
        yield running


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server whose proxy is this machine, with room for two connections of one client."""
    folder = tmp_path_factory.mktemp("proxied")
    with behind(folder, ["127.0.0.1", "10.0.0.0/8"], connections_per_address=2) as running:
        yield running


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server whose proxy is elsewhere."""
    with behind(tmp_path_factory.mktemp("direct"), ["192.0.2.1"]) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([], "10.0.0.1"),
        ([(b"x-forwarded-for", b"198.51.100.7")], "198.51.100.7"),
        ([(b"x-forwarded-for", b"203.0.113.9, 198.51.100.7")], "198.51.100.7"),
        ([(b"x-forwarded-for", b"198.51.100.7, 10.0.0.2, 10.0.0.3")], "198.51.100.7"),
        (
            [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-for", b"198.51.100.7")],
            "198.51.100.7",
        ),
        ([(b"x-forwarded-for", b"10.0.0.9, 10.0.0.2")], "10.0.0.9"),
        ([(b"x-forwarded-for", b"198.51.100.7:4711")], "198.51.100.7"),
        ([(b"x-forwarded-for", b"[2001:db8::7]:4711")], "2001:db8::7"),
        ([(b"x-forwarded-for", b"2001:db8::7")], "2001:db8::7"),
        ([(b"x-forwarded-for", b"::ffff:198.51.100.7")], "198.51.100.7"),
        ([(b"x-forwarded-for", b"198.51.100.7, unknown")], "10.0.0.1"),
        ([(b"x-forwarded-for", b"198.51.100.7, unknown, 10.0.0.2")], "10.0.0.2"),
        ([(b"x-forwarded-for", b"")], "10.0.0.1"),
        ([(b"forwarded", b"for=198.51.100.7")], "10.0.0.1"),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_is_the_client(
    headers: Headers, client: str
) -> None:
    proxies = TrustedProxies(["10.0.0.0/8"])
    assert proxies.client_of("10.0.0.1", headers)[0] == client


def test_the_nearest_proxy_tells_the_scheme() -> None:
    proxies = TrustedProxies(["10.0.0.0/8"])

    def scheme(value: bytes) -> str | None:
        return proxies.client_of("10.0.0.1", [(b"x-forwarded-proto", value)])[1]

    assert (scheme(b"https"), scheme(b"http, HTTPS "), scheme(b"javascript")) == (
        "https",
        "https",
        None,
    )
    assert proxies.client_of("10.0.0.1", [])[1] is None


def test_only_this_machine_and_probes_may_go_past_a_proxy() -> None:
    proxies = TrustedProxies(["10.0.0.0/8", "2001:db8::/32"], needs_proxy=True)
    for address in (
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "2001:db8::1",
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
    ):
        assert not proxies.refuses(address, "/mcp"), address
    for address in ("192.0.2.1", "::ffff:192.0.2.1", "2001:db9::1", ""):
        assert proxies.refuses(address, "/mcp"), address
        assert not proxies.refuses(address, "/livez")
    assert not TrustedProxies(["10.0.0.0/8"]).refuses("192.0.2.1", "/mcp")


async def test_the_log_names_the_client_behind_a_trusted_proxy(proxied: Running) -> None:
    forwarded = {**WRONG, "x-forwarded-for": "203.0.113.9, 198.51.100.7, 10.0.0.2"}
    async with httpx2.AsyncClient(base_url=proxied.url, timeout=60) as raw:
        assert (await raw.post("/mcp", headers=forwarded)).status_code == 401
    await until(lambda: "wrong token from 198.51.100.7\n" in proxied.log)


@pytest.mark.parametrize(
    ("path", "tool"), [("/mcp/", "session_list"), ("/s/desk/mcp/", "state_get")]
)
async def test_a_slash_at_the_end_of_an_address_causes_no_redirect(
    direct: Running, proxied: Running, path: str, tool: str
) -> None:
    body, headers = modern_call(tool, {})
    headers |= {**ALICE, "host": NAME, "x-forwarded-proto": "https"}
    for running in (direct, proxied):
        async with httpx2.AsyncClient(base_url=running.url, timeout=60) as raw:
            answer = await raw.post(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json()["result"]


async def test_headers_of_anybody_else_are_ignored(direct: Running) -> None:
    forwarded = {**WRONG, "x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https"}
    async with httpx2.AsyncClient(base_url=direct.url, timeout=60) as raw:
        assert (await raw.post("/mcp", headers=forwarded)).status_code == 401
        # With a trusted proxy, this would be the origin of the server itself.
        page = {"x-forwarded-proto": "https", "host": NAME, "origin": f"https://{NAME}"}
        assert (await raw.get("/livez", headers=page)).status_code == 403
    await until(lambda: "wrong token from 127.0.0.1\n" in direct.log)
    await until(lambda: f"foreign Origin 'https://{NAME}' from 127.0.0.1\n" in direct.log)
    assert "198.51.100.7" not in direct.log


async def test_the_console_works_behind_a_proxy_with_tls(proxied: Running) -> None:
    page = {"x-forwarded-proto": "https", "host": NAME, "origin": f"https://{NAME}"}
    page["content-type"] = "application/json"
    body = json.dumps({"token": TOKEN})
    async with httpx2.AsyncClient(base_url=proxied.url, timeout=60) as raw:
        answer = await raw.post("/api/v1/login", headers=page, content=body)
        assert answer.status_code == 200, answer.text
        assert "secure" in answer.headers["set-cookie"].lower()
        for origin in (f"http://{NAME}", "https://evil.example"):
            foreign = {**page, "origin": origin}
            answer = await raw.post("/api/v1/login", headers=foreign, content=body)
            assert answer.status_code == 403


@pytest.mark.parametrize(
    ("client", "same", "other"),
    matrix(
        ("198.51.100.1", "198.51.100.1", "198.51.100.2"),
        # One client chooses any address of its network of IPv6.
        ("2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"),
        ("2001:db8:9::1", "[2001:db8:9::4]:80", "198.51.100.3"),
        ("198.51.100.4", "::ffff:198.51.100.4", "198.51.100.5"),
    ),
)
async def test_connections_count_for_the_client_whose_request_they_carry(
    proxied: Running, client: str, same: str, other: str
) -> None:
    host, _, port = proxied.url.removeprefix("http://").rpartition(":")
    with ExitStack() as stack:

        def stream(address: str) -> http.client.HTTPResponse:
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            stack.callback(connection.close)
            connection.request("GET", "/sse", headers={**ALICE, "x-forwarded-for": address})
            return connection.getresponse()

        first = [await anyio.to_thread.run_sync(stream, each) for each in (client, same) * 2]
        assert [answer.status for answer in first] == [200, 200, 503, 503]
        second = await anyio.to_thread.run_sync(stream, other)
        assert second.status == 200
    await until(lambda: "beyond http.connections_per_address from " in proxied.log)

    async def is_free() -> bool:
        async with httpx2.AsyncClient(base_url=proxied.url, timeout=60) as raw:
            answer = await raw.get("/livez", headers={"x-forwarded-for": client})
            return answer.status_code == 200

    await until(is_free)


def address_of_this_machine() -> str:
    """Return an address that is not loopback, at which this machine reaches itself; "" without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # This sets the addresses of the socket only.
            probe.connect(("192.0.2.254", 9))
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


async def test_other_machines_have_to_come_through_the_proxy(tmp_path: Path) -> None:
    own = address_of_this_machine()
    if not own:
        pytest.skip("this machine has no address but loopback")
    with behind(tmp_path, ["198.51.100.0/24"], "0.0.0.0") as running:
        port = running.url.rpartition(":")[2]
        async with httpx2.AsyncClient(base_url=f"http://{own}:{port}", timeout=60) as raw:
            answer = await raw.post("/mcp", headers=ALICE, content="{}")
            assert (answer.status_code, answer.text) == (403, "Only the proxies may connect")
            assert (await raw.get("/console/")).status_code == 403
            for path in ("/livez", "/readyz", "/health"):
                assert (await raw.get(path)).status_code == 200
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as raw:
            assert (await raw.post("/mcp", headers=ALICE, content="{}")).status_code == 400
        await until(lambda: f"request past server.trusted_proxies from {own}\n" in running.log)


def test_an_address_that_others_can_reach_needs_tls_or_a_proxy(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{TOKEN} alice\n")
    command = [*statehold(), "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    command += ["--host", "0.0.0.0", "--token-file", str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "--host: listening on 0.0.0.0 without TLS is refused" in line
    assert "server.tls" in line
    assert "server.trusted_proxies" in line
