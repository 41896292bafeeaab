"""The SDK's client logs in at a real OpenID provider, and works with sessions."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl
from support.gateway_process import (
    JSON,
    Running,
    code_of,
    count,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.hostile_issuer import INTROSPECTOR
from support.selection import matrix

CALLBACK = "http://127.0.0.1:9/callback"
TypescriptLogin = Callable[[JSON], Awaitable[JSON]]
PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "oidc_provider.mjs"


@pytest.fixture(scope="module", params=["jwt", "opaque"])
def provider(request: pytest.FixtureRequest, npm_peers: Path) -> Generator[tuple[str, str]]:
    """The URL of an OpenID provider, and the form of its access tokens."""
    command = ["node", str(PROGRAM), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), request.param
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def server(
    provider: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    issuer, form = provider
    port, folder = free_port(), tmp_path_factory.mktemp("real")
    url = f"http://127.0.0.1:{port}"
    table: JSON = {"issuer": issuer}
    if form == "opaque":
        client_id, client_secret = INTROSPECTOR
        table |= {
            "introspection_endpoint": f"{issuer}/token/introspection",
            "client_id": client_id,
            "client_secret": client_secret,
        }
    auth = {"issuers": [table], "audience": [f"{url}/mcp"]}
    config = folder / "statehold.toml"
    settings = {
        "server": {"public_url": url},
        "auth": auth,
        "services": {"quick": service("quick")},
    }
    config.write_text(toml({"toolsets": ["core", "admin"], **settings}))
    with serving(config, folder / "data", "--port", str(port)) as running:
        yield running


class Storage:
    """The tokens and the registration of one client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """A person with a browser, who logs in and agrees to everything. It counts the logins."""

    def __init__(self, account: str) -> None:
        self._browser = httpx2.AsyncClient(cookies={"account": account}, timeout=60)
        self._result: AuthorizationCodeResult | None = None
        self.scopes: list[set[str]] = []
        """The scopes of ours that each login was for."""

    async def visit(self, url: str) -> None:
        scopes = parse_qs(urlsplit(url).query)["scope"][0].split()
        # The client adds offline_access where the provider has it.
        self.scopes.append({scope for scope in scopes if scope.startswith("statehold:")})
        while not url.startswith(CALLBACK):
            answer = await self._browser.get(url)
            assert answer.status_code in (302, 303), answer.text
            url = str(httpx2.URL(url).join(answer.headers["location"]))
        query = parse_qs(urlsplit(url).query)
        self._result = AuthorizationCodeResult(
            code=query["code"][0], state=query["state"][0], iss=query["iss"][0]
        )

    async def result(self) -> AuthorizationCodeResult:
        assert self._result is not None
        return self._result

    async def aclose(self) -> None:
        await self._browser.aclose()


class Login:
    """A client of a person, with its storage."""

    def __init__(self, server: Running, account: str) -> None:
        self._url = f"{server.url}/mcp"
        self.storage = Storage()
        self.person = Person(account)
        self.provider = self._provider()

    def _provider(self) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(
            client_name="tests",
            redirect_uris=[AnyUrl(CALLBACK)],
            token_endpoint_auth_method="none",
            grant_types=["authorization_code", "refresh_token"],
        )
        return OAuthClientProvider(
            self._url, metadata, self.storage, self.person.visit, self.person.result
        )

    @asynccontextmanager
    async def connect(self, mode: str = "auto") -> AsyncGenerator[Client]:
        async with (
            httpx2.AsyncClient(auth=self.provider, timeout=60) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=mode) as client,
        ):
            yield client

    @property
    def access_token(self) -> str:
        assert self.storage.tokens is not None
        return self.storage.tokens.access_token

    def expire(self) -> None:
        """Have the client take its access token for expired."""
        self.provider.context.token_expiry_time = 1.0

    def forget_registration(self) -> None:
        """Become a client that has never been registered."""
        self.storage = Storage()
        self.provider = self._provider()


@pytest.fixture
async def alice(server: Running) -> AsyncGenerator[Login]:
    login = Login(server, "alice")
    yield login
    await login.person.aclose()


@pytest.fixture
async def ben(server: Running) -> AsyncGenerator[Login]:
    login = Login(server, "ben")
    yield login
    await login.person.aclose()


@pytest.mark.parametrize("mode", matrix("auto", "legacy"))
async def test_a_client_logs_in_steps_up_and_refreshes(alice: Login, mode: str) -> None:
    async with alice.connect(mode) as client:
        session = await opened_session(client)
        assert await count(client, session) == 1
        assert alice.person.scopes == [{"statehold:use"}]
        assert structured(await client.call_tool("server_stats", {}))
        assert alice.person.scopes[1:] == [{"statehold:use", "statehold:admin"}]
        assert await count(client, session) == 2
        before = alice.access_token
        alice.expire()
        assert await count(client, session) == 3
        assert alice.access_token != before
        assert len(alice.person.scopes) == 2


async def test_a_client_that_registers_anew_keeps_its_sessions(alice: Login, ben: Login) -> None:
    async with alice.connect() as client:
        session = await opened_session(client)
        assert await count(client, session) == 1
    first = alice.storage.client
    alice.forget_registration()
    async with alice.connect() as client:
        assert await count(client, session) == 2
    second = alice.storage.client
    assert first is not None
    assert second is not None
    assert first.client_id != second.client_id
    async with ben.connect() as client:
        assert code_of(await client.call_tool("inc", {"session_id": session})) == (
            "session_not_found"
        )


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_typescript_client_logs_in_steps_up_refreshes_and_registers_anew(
    server: Running, typescript_login: TypescriptLogin, mode: str, version: str
) -> None:
    url = f"{server.url}/mcp"
    login = await typescript_login({"mode": mode, "url": url, "account": f"person{mode}"})
    assert login["version"] == version
    first, stepped_up, last = login["scopes"]
    assert first == last == ["statehold:use"]
    assert "statehold:admin" in stepped_up
    assert login["counts"] == [1, 2, 3, 4]
    assert login["refreshed"]
    assert len(set(login["clients"])) == 2


async def test_no_other_token_of_the_provider_gets_in(
    alice: Login, server: Running, provider: tuple[str, str]
) -> None:
    issuer, form = provider
    async with alice.connect() as client:
        await opened_session(client)
    tokens = alice.storage.tokens
    assert tokens is not None
    assert tokens.refresh_token is not None
    async with httpx2.AsyncClient(timeout=60) as raw:

        async def status(token: str) -> int:
            headers = {"authorization": f"Bearer {token}"}
            return (await raw.post(f"{server.url}/mcp", headers=headers)).status_code

        assert await status(tokens.access_token) != 401
        assert await status(tokens.refresh_token) == 401
        assert (tokens.access_token.count(".") == 2) == (form == "jwt")
        assert alice.storage.client is not None
        if form == "opaque":
            form_data = {"token": tokens.refresh_token, "client_id": alice.storage.client.client_id}
            revoked = await raw.post(f"{issuer}/token/revocation", data=form_data)
            assert revoked.status_code == 200
