"""The client of the conformance suite in its scenarios of logins: `python -m support.conformance_login WAY URL`.

`direct` is the SDK's own client. `through` is a Statehold with the URL as its one service, and an MCP client of it that
opens the addresses it is asked to open, as the browser of a person does. Each calls the one tool that there is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from pydantic import AnyUrl

from .gateway_process import opened_session, statehold, text_of, toml
from .waiting import until

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The address of a client metadata document that the suite knows."""
REDIRECT: Final = "http://127.0.0.1:3000/callback"
TOOL: Final = "test-tool"
ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+/login/[\w-]+")
MAX_LOGINS: Final = 3
"""How often a person logs in before they give up."""


class Memory:
    """The tokens and the client of one direct run."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def issuer_of(url: str) -> str:
    """Return the authorization server of a service, as its operator knows it."""
    parts = httpx2.URL(url)
    where = parts.copy_with(path=f"/.well-known/oauth-protected-resource{parts.path}")
    async with httpx2.AsyncClient() as http:
        return (await http.get(where)).json()["authorization_servers"][0]


def person() -> dict[str, Any]:
    """Return the callbacks of somebody who logs in at once."""
    came: list[str] = []

    async def show(address: str) -> None:
        async with httpx2.AsyncClient() as http:
            came.append((await http.get(address)).headers["location"])

    async def wait() -> AuthorizationCodeResult:
        query = httpx2.URL(came.pop()).params
        return AuthorizationCodeResult(
            code=query["code"], state=query.get("state"), iss=query.get("iss")
        )

    return {"redirect_handler": show, "callback_handler": wait}


async def provider_of(url: str, scenario: str, context: dict[str, str]) -> httpx2.Auth:
    client_id, secret = context.get("client_id", ""), context.get("client_secret")
    if scenario == "auth/client-credentials-jwt":
        key = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=context["private_key_pem"],
            signing_algorithm=context["signing_algorithm"],
        )
        return PrivateKeyJWTOAuthProvider(
            url,
            Memory(),
            client_id,
            key.create_assertion_provider(),
            issuer=await issuer_of(url),
        )
    if scenario == "auth/client-credentials-basic":
        assert secret is not None
        issuer = await issuer_of(url)
        return ClientCredentialsOAuthProvider(url, Memory(), client_id, secret, issuer=issuer)
    storage, redirects = Memory(), [AnyUrl(REDIRECT)]
    if client_id:
        storage.client = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            redirect_uris=redirects,
            token_endpoint_auth_method="client_secret_basic",
        )
    metadata = OAuthClientMetadata(client_name="conformance", redirect_uris=redirects)
    return OAuthClientProvider(url, metadata, storage, client_metadata_url=DOCUMENT, **person())


async def run_direct(url: str, scenario: str, context: dict[str, str], mode: str) -> None:
    auth = await provider_of(url, scenario, context)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
    ):
        await client.list_tools()
        await client.call_tool(TOOL, {})


async def login_of(url: str, scenario: str, context: dict[str, str]) -> dict[str, str]:
    """Return the settings of the login at a service."""
    login = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if not scenario.startswith("auth/client-credentials"):
        return login or {"client_metadata_url": DOCUMENT}
    if "private_key_pem" in context:
        login["private_key"] = context["private_key_pem"]
    return {**login, "grant": "client_credentials", "issuer": await issuer_of(url)}


@asynccontextmanager
async def gateway(folder: Path, service: dict[str, Any]) -> AsyncGenerator[Client]:
    config = folder / "statehold.toml"
    config.write_text(toml({"services": {"remote": service}}))
    command, *arguments = statehold()
    server = StdioServerParameters(
        command=command,
        args=[*arguments, "--config", str(config), "--data", str(folder / "data")],
        env=dict(os.environ),
    )

    async def open_address(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        await visit(params.url)
        return ElicitResult(action="accept")

    async with Client(
        stdio_client(server), mode="auto", cache=None, elicitation_callback=open_address
    ) as client:
        yield client


async def visit(address: str) -> bool:
    """Log in as a person does; return whether that worked."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=30) as http:
        page = await http.get(address)
    sys.stderr.write(f"{address}: {page.status_code} {page.text[-300:]}\n")
    return page.is_success


async def run_through(url: str, scenario: str, context: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        service = {"url": url, "type": "http", "login": await login_of(url, scenario, context)}
        async with gateway(Path(folder), service) as client:
            session, visited = await opened_session(client), set[str]()

            async def is_over() -> bool:
                """Call the tool, and follow an address that the error has; a call after that may come too early."""
                result = await client.call_tool(TOOL, {"session_id": session})
                sys.stderr.write(f"{text_of(result)}\n")
                if not result.is_error:
                    return True
                new = set(ADDRESS.findall(text_of(result))) - visited
                visited.update(new)
                return len(visited) > MAX_LOGINS or not all([await visit(each) for each in new])

            await until(is_over)


def main() -> None:
    way, url = sys.argv[1:]
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = cast("dict[str, str]", json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))
    is_modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") == "2026-07-28"
    if way == "direct":
        anyio.run(run_direct, url, scenario, context, "auto" if is_modern else "legacy")
    else:
        anyio.run(run_through, url, scenario, context)


if __name__ == "__main__":
    main()
