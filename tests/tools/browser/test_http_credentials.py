"""Logins by HTTP that the configuration has, and passwords in addresses."""

from __future__ import annotations

import base64
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from served import Served, Server
from support.browsing import again, new_view, opened, running, section

from statehold.sessions.errors import ServiceUnavailable

PASSWORD = "a:long secret/7"
LOGIN = "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()


class Private(Served):
    """A site that every request has to log in to."""

    def __init__(self) -> None:
        self.handler = _Handler
        self.logins: list[str | None] = []
        super().__init__()


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        site: Private = self.server.site
        login = self.headers.get("Authorization")
        site.logins.append(login)
        body = b"<title>inside</title>" if login == LOGIN else b"<title>outside</title>"
        self.send_response(200 if login == LOGIN else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="staging"')
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def private() -> Generator[Private]:
    with Private() as site:
        yield site


async def test_a_site_gets_its_login_and_no_other_site_does(
    private: Private, tmp_path: Path, data: Path, shell: str
) -> None:
    url = private.at(1)
    (tmp_path / "secrets.env").write_text(f"PASSWORD@{url}='{PASSWORD}'")
    settings = {
        "http_credentials": {url: "ada:%PASSWORD%"},
        "secrets": str(tmp_path / "secrets.env"),
    }
    async with running(data, shell, **settings) as service, opened(service) as browse:
        assert "Page Title: inside" in await browse.text("navigate", url=f"{url}/")
        async with again(browse) as later:
            assert "Page Title: inside" in await later.text("snapshot")
            private.logins.clear()
            foreign = url.replace("127.0.0.1", "localhost")
            assert "outside" in await later.text("navigate", url=f"{foreign}/")
    assert set(private.logins) == {None}


async def test_a_login_with_a_secret_of_another_site_is_refused(
    tmp_path: Path, data: Path, shell: str
) -> None:
    (tmp_path / "secrets.env").write_text(f"PASSWORD@https://shop.test='{PASSWORD}'")
    login = {"https://evil.test": "ada:%PASSWORD%"}
    settings = {"http_credentials": login, "secrets": str(tmp_path / "secrets.env")}
    async with running(data, shell, **settings) as service:
        with pytest.raises(
            ServiceUnavailable, match=r"only for pages of https://shop\.test"
        ) as caught:
            await service.open(new_view(), None)
    assert not caught.value.retryable


async def test_the_password_of_an_address_is_in_no_result(
    private: Private, data: Path, shell: str
) -> None:
    address = private.at(1).replace("//", "//ada:a%3Along%20secret%2F7@")
    async with running(data, shell) as service, opened(service) as browse:
        texts = [await browse.text("navigate", url=f"{address}/")]
        assert "Page URL: http://ada:••••••@127.0.0.1" in section(texts[0], "Page")
        assert "Page Title: inside" in texts[0]
        texts.append(await browse.text("tabs", action="new", url=f"{address}/"))
        texts.append(await browse.text("network_requests", static=True))
        texts.append(
            await browse.error("navigate", url=f"{address.replace('127.0.0.1', 'gone.invalid')}")
        )
    assert not [text for text in texts if "secret" in text]
