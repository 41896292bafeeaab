"""Logins at real providers for real servers: a person in Chromium, from the first refusal to the answer, and renewals."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from playwright.async_api import Browser, async_playwright
from support.gateway_process import JSON, Way, opened_session, serving, text_of, toml
from support.glewlwyd import running_glewlwyd
from support.listening import run_listening
from support.openid_provider import (
    PEERS,
    OpenIdProvider,
    running_provider,
    typescript_server,
)
from support.parts import require
from support.waiting import until

TOKEN_SECONDS = 2
pytestmark = pytest.mark.thorough


@pytest.fixture
async def browser(chromium: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        async with opened:
            yield opened


@pytest.fixture
def provider(npm_peers: Path, tmp_path: Path) -> Generator[OpenIdProvider]:
    with running_provider(tmp_path / "provider.log", seconds=TOKEN_SECONDS) as running:
        yield running


@pytest.fixture(params=["typescript", "fastmcp", "sdk"])
def guarded_url(
    request: pytest.FixtureRequest, provider: OpenIdProvider, peers_python: str
) -> Generator[str]:
    """The URL of a server that demands tokens of the provider."""
    program = str(PEERS / "python" / "guarded_server.py")
    command = [peers_python, program, request.param, provider.issuer]
    is_typescript = request.param == "typescript"
    server = typescript_server(provider.issuer) if is_typescript else run_listening(command)
    with server as port:
        yield f"http://127.0.0.1:{port}/mcp"


class Person:
    """A person who opens the addresses that their client shows. It counts the clicks."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.clicks = 0

    async def answer(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        async with await self._browser.new_page() as page:
            await page.goto(params.url)
            await page.get_by_placeholder("Enter any login").fill("ada")
            await page.get_by_placeholder("and password").fill("secret")
            await page.get_by_role("button", name="Sign-in").click()
            await page.get_by_role("button", name="Continue").click()
            await page.get_by_role("heading", name="Logged in at notes").wait_for()
            self.clicks += 3
        return ElicitResult(action="accept")


async def test_a_person_logs_in_with_three_clicks_and_the_token_is_renewed(
    tmp_path: Path, provider: OpenIdProvider, guarded_url: str, browser: Browser
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"notes": {"url": guarded_url}}}))
    person = Person(browser)
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect(elicitation_callback=person.answer) as client:
            session = await opened_session(client)
            assert await whoami(client, session) == "ada"

            async def is_renewed() -> bool:
                assert (await whoami(client, session)).partition("\n")[0] == "ada"
                return provider.renewals() > 2

            await until(is_renewed)
    assert person.clicks == 3
    assert {each["outcome"] for each in provider.grants()} == {"success"}


async def test_a_client_that_is_configured_logs_in_at_a_provider_without_registration(
    tmp_path: Path, pytestconfig: pytest.Config, peers_python: str
) -> None:
    """Glewlwyd, whose clients come back to one address only."""
    require(pytestconfig, "glewlwyd")
    provider_port, server_port, login_port = free_ports(3)
    url = f"http://127.0.0.1:{server_port}/mcp"
    program = str(PEERS / "python" / "guarded_server.py")
    login: JSON = {"client_id": "notes-client", "client_secret": "notes-secret", "port": login_port}
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"notes": {"url": url, "login": login}}}))
    with running_glewlwyd(
        tmp_path, provider_port, ["notes"], url, seconds=TOKEN_SECONDS
    ) as provider:
        provider.add_client(
            "notes-client",
            "notes-secret",
            f"http://127.0.0.1:{login_port}/callback",
        )

        def visit(address: str) -> None:
            target = httpx2.get(address, timeout=30).headers["location"]
            page = httpx2.get(provider.answer(target, "notes-client", "notes"), timeout=30)
            assert "Logged in at notes" in page.text, page.text

        async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
            assert isinstance(params, ElicitRequestURLParams)
            await anyio.to_thread.run_sync(visit, params.url)
            return ElicitResult(action="accept")

        command = [peers_python, program, "sdk", provider.issuer, str(server_port)]
        with run_listening(command), serving(config, data) as running:
            way = Way("http", "modern", config, data, url=running.url)
            async with way.connect(elicitation_callback=answer) as client:
                session = await opened_session(client)
                subject = await whoami(client, session)
                ends_at = anyio.current_time() + 3 * TOKEN_SECONDS
                while anyio.current_time() < ends_at:
                    assert (await whoami(client, session)).partition("\n")[0] == subject


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in listeners]


async def whoami(client: Client, session: str) -> str:
    result = await client.call_tool("whoami", {"session_id": session})
    assert not result.is_error, text_of(result)
    return text_of(result)
