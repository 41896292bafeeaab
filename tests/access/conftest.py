"""A server that accepts the tokens of two issuers of the tests: one with keys, one that is asked about tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import httpx2
import pytest
from support.gateway_fixtures import *
from support.gateway_process import JSON, Running, service
from support.hostile_issuer import AUDIENCE, INTROSPECTOR, HostileIssuer, hostile_issuer
from support.token_file import write_tokens

PUBLIC_URL = "https://mcp.example.org"


@pytest.fixture(scope="module")
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        running.add_key("ec")
        running.add_key("ed", "ed")
        yield running


@pytest.fixture(scope="module")
def asked_issuer() -> Generator[HostileIssuer]:
    """The issuer whose tokens are opaque."""
    with hostile_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def settings(
    issuer: HostileIssuer, asked_issuer: HostileIssuer, tmp_path_factory: pytest.TempPathFactory
) -> JSON:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    write_tokens(tokens, "static-token-0123456789 static\n")
    client_id, client_secret = INTROSPECTOR
    asked = {
        "issuer": asked_issuer.url,
        "introspection_endpoint": f"{asked_issuer.url}/introspect",
        "client_id": client_id,
        "client_secret": client_secret,
    }
    return {
        "toolsets": ["core", "lifecycle", "view", "state", "history", "branch", "admin"],
        "server": {
            "tokens": str(tokens),
            "public_url": PUBLIC_URL,
            "allowed_hosts": ["mcp.example.org"],
        },
        "auth": {
            "issuers": [{"issuer": issuer.url}, asked],
            "audience": [AUDIENCE, PUBLIC_URL],
            "roles": {"staff": "operator"},
        },
        # A question of this server is parked here; one of the newer era is parked at the server.
        "services": {"quick": service("asking", "--era", "legacy")},
    }


@pytest.fixture
async def raw(server: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        yield client
