"""The proxies of the environment before the HTTP clients of ours."""

from __future__ import annotations

from importlib.util import find_spec

import httpx2
import pytest
from support.machines import free_port
from support.selection import matrix

from statehold.access.issuer_requests import get_json
from statehold.access.refusals import VerifierUnavailable
from statehold.tools.http_client import http_options, server_of
from statehold.tools.upstream.transports.http import HttpClient

PROXY = "http://127.0.0.1:9"
BEHIND = ", by the proxy of the environment"


@pytest.fixture(autouse=True)
def proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "direct.example")


@pytest.mark.parametrize(
    ("url", "server"),
    matrix(
        ("http://ada:secret@host.example/mcp?key=1", f"http://host.example{BEHIND}"),
        ("http://127.0.0.1:9/mcp", "http://127.0.0.1:9"),
        ("http://localhost/mcp", "http://localhost"),
        ("http://[::1]:80/", "http://[::1]:80"),
        ("http://direct.example/", "http://direct.example"),
        ("https://host.example/", "https://host.example"),
    ),
)
def test_an_error_names_the_server_and_its_proxy(url: str, server: str) -> None:
    assert server_of(url) == server
    assert http_options(url)["trust_env"] == (
        "127" not in url and "local" not in url and "::" not in url
    )


async def test_no_proxy_stands_before_a_service_or_an_issuer_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    url = f"http://127.0.0.1:{free_port()}/"
    with pytest.raises(VerifierUnavailable, match="ConnectError"):
        await get_json(url)
    async with HttpClient(url, {}) as client:
        with pytest.raises(httpx2.ConnectError) as caught:
            await client.delete(url)
    assert "proxy" not in str(caught.value)


@pytest.mark.skipif(find_spec("socksio") is not None, reason="socksio is installed")
async def test_a_proxy_that_needs_another_package_is_an_error_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(VerifierUnavailable, match="ProxyError"):
        await get_json("https://issuer.example/")
    with pytest.raises(httpx2.ProxyError, match="socksio"):
        HttpClient("https://host.example/", {})
