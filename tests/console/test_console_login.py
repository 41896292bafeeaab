"""Login at the console: codes, tokens, cookies, CSRF, origins."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from support.console_client import (
    ConsoleClient,
    console_address,
    console_client,
)
from support.gateway_process import Running

from statehold.access.refusals import Backoff
from statehold.console.app import Console
from statehold.console.logins import CODE_SECONDS, LOGIN_SECONDS, SEEN_SECONDS
from statehold.server.gateway.gateway import Gateway
from statehold.shell.main import main


async def test_a_code_gives_a_strict_cookie_once(server: Running) -> None:
    url, _, code = console_address(server.data).partition("/console#code=")
    assert url == server.url
    assert len(code) == 22
    async with console_client(url) as client:
        response = await client.send("POST", "/login", {"code": code})
        cookie, *flags = response.headers["set-cookie"].split("; ")
        assert cookie.startswith("__Host-statehold=")
        assert set(flags) == {
            *("Secure", "HttpOnly", "SameSite=strict", "Path=/"),
            *(flag for flag in flags if flag.startswith("Max-Age=431")),
        }
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert response.json()["is_machine_user"] is True
        replayed = await client.refused("POST", "/login", {"code": code})
        assert (replayed["status"], replayed["code"]) == (401, "login_failed")
        # An answer has no second copy of the cookie.
        assert cookie.partition("=")[2] not in response.text


async def test_a_forged_cookie_is_no_login_and_a_logout_ends_one(
    server: Running, root: ConsoleClient
) -> None:
    assert (await root.get("/me"))["csrf"] == root.csrf
    async with console_client(server.url) as other:
        other.cookie = root.cookie[:-1] + ("A" if root.cookie[-1] != "A" else "B")
        assert (await other.refused("GET", "/me"))["status"] == 401
        other.cookie, other.csrf = root.cookie, root.csrf
        await other.post("/logout")
    assert (await root.refused("GET", "/sessions"))["code"] == "login_required"


async def test_a_change_needs_the_csrf_token_and_an_origin_of_our_own(
    server: Running, root: ConsoleClient, alice: ConsoleClient
) -> None:
    token = root.csrf
    for wrong in ("", token + "x", token[:-1], alice.csrf):
        root.csrf = wrong
        refused = await root.refused("POST", "/logout", {})
        assert (refused["status"], refused["code"]) == (403, "csrf")
    root.csrf = token
    other_port = "http://127.0.0.1:9"
    for origin in (other_port, f"{server.url}.evil.test", "null"):
        response = await root.send("POST", "/logout", {}, origin=origin)
        assert response.status_code == 403, origin
        response = await root.send("POST", "/login", {"code": "x"}, origin=origin)
        assert response.status_code == 403, origin
    response = await root.send("POST", "/logout", {}, origin=server.url)
    assert response.status_code == 200


async def test_a_login_is_no_form_of_another_page(server: Running) -> None:
    async with console_client(server.url) as client:
        refused = await client.refused("POST", "/login", {"code": "x"}, content_type="text/plain")
        assert (refused["status"], refused["code"]) == (400, "invalid_argument")
        for body in ({}, {"code": "a", "token": "b"}, {"cookie": "a"}, [1]):
            assert (await client.refused("POST", "/login", body))["status"] == 400


class ConsoleInProcess:
    """A console whose clock only the test moves."""

    def __init__(self, gateway: Gateway) -> None:
        # Later than the clock of the store's process, which would delete what has expired.
        self.now = 4e9
        self.delays: list[float] = []
        backoff = Backoff(clock=self.clock, sleep=self.sleep)
        self.console = Console(gateway, clock=self.clock, backoff=backoff)
        app = Starlette(routes=self.console.routes())
        transport = httpx2.ASGITransport(app)
        self.client = ConsoleClient(httpx2.AsyncClient(transport=transport, base_url="http://test"))

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)


async def test_a_code_and_a_login_expire(gateway: Gateway) -> None:
    local = ConsoleInProcess(gateway)
    late = await local.console.logins.mint_code()
    local.now += CODE_SECONDS
    code = await local.console.logins.mint_code()
    assert (await local.client.refused("POST", "/login", {"code": late}))["status"] == 401
    await local.client.log_in(code=code)
    local.now += LOGIN_SECONDS - 1
    await local.client.get("/me")
    local.now += 1
    assert (await local.client.refused("GET", "/me"))["code"] == "login_required"


async def test_a_login_is_in_use_for_a_minute_after_its_last_request(gateway: Gateway) -> None:
    local = ConsoleInProcess(gateway)
    logins = local.console.logins
    await local.client.log_in(code=await logins.mint_code())
    assert logins.is_in_use()
    local.now += SEEN_SECONDS - 1
    await local.client.get("/me")
    local.now += SEEN_SECONDS - 1
    assert logins.is_in_use()
    local.now += 1
    assert not logins.is_in_use()
    await local.client.get("/me")
    await local.client.post("/logout")
    assert not logins.is_in_use()


async def test_wrong_logins_are_delayed_ever_longer(gateway: Gateway) -> None:
    local = ConsoleInProcess(gateway)
    for number in range(6):
        await local.client.refused("POST", "/login", {"code": f"guess {number}"})
    assert local.delays == [0.05, 0.1, 0.2, 0.4, 0.8]


async def test_the_command_prints_an_address_that_logs_in(
    server: Running, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["console", "--url-only", "--data", str(server.data)]
    assert await anyio.to_thread.run_sync(main, words) == 0
    url, _, code = capsys.readouterr().out.strip().partition("/console#code=")
    async with console_client(url) as client:
        await client.log_in(code=code)
    words = ["console", "--url-only", "--data", str(tmp_path)]
    assert await anyio.to_thread.run_sync(main, words) == 1
    assert "no server runs" in capsys.readouterr().err


@pytest.mark.thorough
async def test_the_command_hides_the_code_from_other_users(
    server: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    assert await anyio.to_thread.run_sync(main, ["console", "--data", str(server.data)]) == 0
    page = server.data / "console.html"
    assert opened == [page.as_uri()]
    assert page.stat().st_mode & 0o777 == 0o600
    assert "#code=" in page.read_text()
    assert "code=" not in capsys.readouterr().out
