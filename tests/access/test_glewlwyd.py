"""Access tokens of Glewlwyd, a second real provider, which follows RFC 9068 and RFC 8707."""

from __future__ import annotations

import socket
from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from anyio import to_thread
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.gateway_process import (
    JSON,
    Running,
    count,
    modern_call,
    opened_session,
    service,
)
from support.glewlwyd import Glewlwyd, running_glewlwyd
from support.parts import require

RESOURCE = "https://mcp.example.org/mcp"
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def glewlwyd(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Glewlwyd]:
    require(pytestconfig, "glewlwyd")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    scopes = ["statehold:read", "statehold:use", "statehold:admin"]
    with running_glewlwyd(tmp_path_factory.mktemp("glewlwyd"), port, scopes, RESOURCE) as running:
        yield running


@pytest.fixture(scope="module")
def settings(glewlwyd: Glewlwyd) -> JSON:
    return {
        "toolsets": ["core", "admin"],
        "server": {"public_url": "https://mcp.example.org"},
        "auth": {"issuers": [{"issuer": glewlwyd.issuer}], "audience": [RESOURCE]},
        "services": {"quick": service("quick")},
    }


async def status_of(server: Running, token: str, tool: str = "session_list") -> int:
    body, headers = modern_call(tool, {})
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        given = {**headers, "authorization": f"Bearer {token}"}
        return (await client.post("/mcp", json=body, headers=given)).status_code


async def count_of(server: Running, token: str, session: str | None) -> tuple[str, int]:
    """Count once in a session, or in a new one."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        session = session or await opened_session(client)
        return session, await count(client, session)


async def test_its_access_tokens_are_accepted_and_its_other_tokens_are_not(
    server: Running, glewlwyd: Glewlwyd
) -> None:
    tokens: Any = await to_thread.run_sync(glewlwyd.log_in, "openid statehold:use")
    session, first = await count_of(server, tokens["access_token"], None)
    assert first == 1
    assert await status_of(server, tokens["access_token"], "server_stats") == 403
    assert await status_of(server, tokens["id_token"]) == 401
    assert await status_of(server, tokens["refresh_token"]) == 401
    renewed: Any = await to_thread.run_sync(glewlwyd.refresh, tokens["refresh_token"])
    assert renewed["access_token"] != tokens["access_token"]
    assert await count_of(server, renewed["access_token"], session) == (session, 2)
    more: Any = await to_thread.run_sync(glewlwyd.log_in, "openid statehold:admin")
    assert await status_of(server, more["access_token"], "server_stats") == 200
    assert await count_of(server, more["access_token"], session) == (session, 3)
