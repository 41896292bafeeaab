"""A server that is an authorization server, over an issuer that answers what a test sets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator

import httpx2
import pytest
from support.document_server import DocumentServer, document_server
from support.facade_browser import FacadeBrowser
from support.facade_flow import ASSERTING, ASSERTING_SECRET, Flow, facade_server
from support.gateway_process import Running
from support.hostile_issuer import HostileIssuer, hostile_issuer


@pytest.fixture(scope="module")
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        document = {
            "issuer": running.url,
            "jwks_uri": f"{running.url}/jwks",
            "authorization_endpoint": f"{running.url}/authorize",
            "token_endpoint": f"{running.url}/token",
            "authorization_response_iss_parameter_supported": True,
        }
        running.answers["/.well-known/openid-configuration"] = (
            *(200, {}, json.dumps(document).encode()),
        )
        yield running


@pytest.fixture(scope="module")
def server(issuer: HostileIssuer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    clients = [{"client_id": ASSERTING, "client_secret": ASSERTING_SECRET}]
    folder = tmp_path_factory.mktemp("facade")
    with facade_server(folder, issuer.url, clients=clients) as running:
        yield running


@pytest.fixture(scope="module")
def documents() -> Generator[DocumentServer]:
    with document_server() as running:
        running.serve(client_name="Editor")
        yield running


@pytest.fixture
async def http(server: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
async def browser() -> AsyncGenerator[FacadeBrowser]:
    opened = FacadeBrowser()
    yield opened
    await opened.aclose()


@pytest.fixture
def flow(
    server: Running,
    issuer: HostileIssuer,
    documents: DocumentServer,
    http: httpx2.AsyncClient,
    browser: FacadeBrowser,
) -> Flow:
    return Flow(server.url, issuer, documents.url, http, browser)
