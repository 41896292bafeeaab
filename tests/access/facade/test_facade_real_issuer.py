"""The SDK's client logs in through the authorization server, at a real OpenID provider, and works with sessions."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

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
from playwright.async_api import async_playwright
from pydantic import AnyUrl
from support.document_server import DocumentServer
from support.facade_browser import FacadeBrowser, query_of
from support.facade_flow import CALLBACK, facade_config, free_port
from support.gateway_process import (
    JSON,
    Running,
    count,
    opened_session,
    serving,
    structured,
)
from support.selection import matrix

PROGRAM = Path(__file__).resolve().parents[2] / "peers" / "oidc_provider.mjs"
Kind = Literal["document", "registration"]
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def provider(npm_peers: Path) -> Generator[str]:
    """The URL of an OpenID provider."""
    with subprocess.Popen(["node", str(PROGRAM)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def nodes(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[list[Running]]:
    """Two processes on one store, the first of which has the public URL."""
    folder, port = tmp_path_factory.mktemp("nodes"), free_port()
    url = f"http://127.0.0.1:{port}"
    client = httpx2.post(f"{provider}/reg", json={"redirect_uris": [f"{url}/callback"]}).json()
    config = facade_config(
        *(folder, url, provider),
        client_id=client["client_id"],
        client_secret=client["client_secret"],
    )
    data = folder / "data"
    with (
        serving(config, data, "--port", str(port)) as first,
        serving(config, data) as second,
    ):
        yield [first, second]


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


class FacadeUser:
    """A client of a person, with a browser. It counts the logins."""

    def __init__(
        self, url: str, account: str, document_url: str | None, path: str = "/mcp"
    ) -> None:
        self._url = f"{url}{path}"
        self._document_url = document_url
        self._result: AuthorizationCodeResult | None = None
        self.browser = FacadeBrowser(account=account)
        self.storage = Storage()
        self.provider = self._provider()
        self.logins = 0

    def _provider(self) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(
            client_name="tests",
            redirect_uris=[AnyUrl(CALLBACK)],
            grant_types=["authorization_code", "refresh_token"],
        )
        return OAuthClientProvider(
            *(self._url, metadata, self.storage, self._visit, self._answer),
            client_metadata_url=self._document_url,
        )

    async def _visit(self, url: str) -> None:
        self.logins += 1
        query = query_of(await self.browser.follow(url, CALLBACK))
        self._result = AuthorizationCodeResult(
            code=query["code"], state=query["state"], iss=query["iss"]
        )

    async def _answer(self) -> AuthorizationCodeResult:
        assert self._result is not None
        return self._result

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

    @property
    def client_id(self) -> str:
        assert self.storage.client is not None
        return self.storage.client.client_id

    def expire(self) -> None:
        """Have the client take its access token for expired."""
        self.provider.context.token_expiry_time = 1.0


@pytest.fixture
async def user(
    request: pytest.FixtureRequest, nodes: list[Running], documents: DocumentServer
) -> AsyncGenerator[FacadeUser]:
    kind: Kind = getattr(request, "param", "registration")
    url = documents.url if kind == "document" else None
    # The SDK takes https URLs for documents only, so the URL is set where it would have put it.
    opened = FacadeUser(nodes[0].url, "alice", None)
    if url is not None:
        documents.serve(redirect_uris=[CALLBACK])
        opened.storage.client = OAuthClientInformationFull(
            client_id=url, redirect_uris=[AnyUrl(CALLBACK)], token_endpoint_auth_method="none"
        )
    yield opened
    await opened.browser.aclose()


@pytest.mark.parametrize(
    ("user", "mode"), matrix(("document", "auto"), ("registration", "legacy")), indirect=["user"]
)
async def test_a_client_logs_in_steps_up_and_refreshes(user: FacadeUser, mode: str) -> None:
    async with user.connect(mode) as client:
        session = await opened_session(client)
        assert await count(client, session) == 1
        assert user.logins == 1
        assert structured(await client.call_tool("server_stats", {}))
        assert user.logins == 2
        assert await count(client, session) == 2
        before = user.access_token
        user.expire()
        assert await count(client, session) == 3
        assert user.access_token != before
        assert user.logins == 2


@pytest.mark.parametrize("path", ["/mcp/", "/s/desk/mcp", "/s/desk/mcp/"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_logs_in_at_each_spelling_of_the_address(
    nodes: list[Running], path: str, mode: str
) -> None:
    user = FacadeUser(nodes[0].url, "alice", None, path)
    async with user.connect(mode) as client:
        assert structured(await client.call_tool("server_stats", {}))
        user.expire()
        assert structured(await client.call_tool("server_stats", {}))
        assert user.logins == 2
    await user.browser.aclose()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_a_typescript_client_logs_in_steps_up_refreshes_and_registers_anew(
    nodes: list[Running], typescript_login: Callable[[JSON], Awaitable[JSON]], path: str
) -> None:
    url = f"{nodes[0].url}{path}"
    login = await typescript_login({"mode": "auto", "url": url, "account": "typescript"})
    assert login["scopes"][0] == login["scopes"][2] == ["statehold:use"]
    assert "statehold:admin" in login["scopes"][1]
    assert login["counts"] == [1, 2, 3, 4]
    assert login["refreshed"]
    assert len(set(login["clients"])) == 2


async def test_another_node_takes_codes_and_tokens(user: FacadeUser, nodes: list[Running]) -> None:
    async with user.connect() as client:
        await opened_session(client)
    second = nodes[1].url
    async with httpx2.AsyncClient(base_url=second, timeout=60) as http:
        headers = {"authorization": f"Bearer {user.access_token}"}
        assert (await http.get("/mcp", headers=headers)).status_code != 401
        assert user.storage.tokens is not None
        form = {
            "grant_type": "refresh_token",
            "client_id": user.client_id,
            "refresh_token": user.storage.tokens.refresh_token,
        }
        answer = await http.post("/token", data=form)
        assert answer.status_code == 200, answer.text
    # The same token at the first node a moment later gets the same answer, and one before that ends the login everywhere.
    async with httpx2.AsyncClient(base_url=nodes[0].url, timeout=60) as http:
        again = (await http.post("/token", data=form)).json()
        assert again["refresh_token"] == answer.json()["refresh_token"]
        latest = {**form, "refresh_token": again["refresh_token"]}
        assert (await http.post("/token", data=latest)).status_code == 200
        assert (await http.post("/token", data=form)).status_code == 400
    async with httpx2.AsyncClient(base_url=second, timeout=60) as http:
        headers = {"authorization": f"Bearer {answer.json()['access_token']}"}
        assert (await http.get("/mcp", headers=headers)).status_code == 401


async def test_a_real_browser_passes_the_pages(
    nodes: list[Running], documents: DocumentServer, headless_shell: str
) -> None:
    """Its content policy stops neither the form nor the redirects of the issuer."""
    documents.serve(redirect_uris=[CALLBACK], client_name="Editor")
    callback = documents.url.replace("client.json", "callback")
    query = {
        "response_type": "code",
        "client_id": documents.url,
        "redirect_uri": callback,
        "state": "of the client",
        "code_challenge": "x" * 43,
        "code_challenge_method": "S256",
    }
    url = str(httpx2.URL(f"{nodes[0].url}/authorize", params=query))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=headless_shell)
        page = await browser.new_page(java_script_enabled=False)
        for button, member in (("Allow", "code"), ("Deny", "error")):
            await page.goto(url)
            await page.get_by_role("button", name=button).click()
            await page.wait_for_url(f"{callback}**")
            answer = query_of(page.url)
            assert answer[member]
            assert (answer["state"], answer["iss"]) == ("of the client", nodes[0].url)
        names = {cookie.get("name", "") for cookie in await page.context.cookies(nodes[0].url)}
        assert not any(name.startswith("__Host-statehold-") for name in names)
        await browser.close()
