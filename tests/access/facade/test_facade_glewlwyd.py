"""A person logs in through the authorization server at Glewlwyd, a second real provider."""

from __future__ import annotations

from collections.abc import Generator

import httpx2
import pytest
from anyio import to_thread
from support.document_server import DocumentServer
from support.facade_browser import FacadeBrowser, next_url, query_of
from support.facade_flow import Flow, facade_config, free_port
from support.gateway_process import Running, serving
from support.glewlwyd import Glewlwyd, running_glewlwyd
from support.hostile_issuer import HostileIssuer
from support.parts import require

CLIENT, SECRET = "facade-client", "facade-secret-0123456789"
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def glewlwyd(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Glewlwyd]:
    require(pytestconfig, "glewlwyd")
    folder = tmp_path_factory.mktemp("glewlwyd")
    with running_glewlwyd(folder, free_port(), [], "https://mcp.example.org/mcp") as running:
        yield running


@pytest.fixture(scope="module")
def over_glewlwyd(
    glewlwyd: Glewlwyd, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    port, folder = free_port(), tmp_path_factory.mktemp("facade")
    url = f"http://127.0.0.1:{port}"
    glewlwyd.add_client(CLIENT, SECRET, f"{url}/callback")
    config = facade_config(*(folder, url, glewlwyd.issuer), client_id=CLIENT, client_secret=SECRET)
    with serving(config, folder / "data", "--port", str(port)) as running:
        yield running


async def test_a_person_logs_in_at_glewlwyd(
    over_glewlwyd: Running, glewlwyd: Glewlwyd, documents: DocumentServer, browser: FacadeBrowser
) -> None:
    async with httpx2.AsyncClient(base_url=over_glewlwyd.url, timeout=60) as http:
        unused = HostileIssuer(glewlwyd.issuer)
        flow = Flow(over_glewlwyd.url, unused, documents.url, http, browser)
        shown = await browser.get(flow.authorize_url())
        page = await browser.get(shown.headers["location"])
        url = next_url(await browser.consent(page))
        back = await to_thread.run_sync(glewlwyd.answer, url, CLIENT)
        answer = await browser.get(back)
        assert answer.status_code == 302, (answer.text, over_glewlwyd.log)
        code = query_of(answer.headers["location"])["code"]
        tokens = (await flow.exchange(code)).json()
        assert await flow.status(tokens["access_token"]) == 200
        renewed = (await flow.refresh(tokens["refresh_token"])).json()
        assert await flow.status(renewed["access_token"]) == 200
