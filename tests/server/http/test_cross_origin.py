"""Clients that are pages: preflights, and the headers by which a page may read the answers of MCP."""

from __future__ import annotations

from collections.abc import Generator

import httpx2
import pytest
from playwright.async_api import async_playwright
from support.document_server import document_server
from support.gateway_process import JSON, Running, modern_call, serving, toml
from support.selection import matrix
from support.token_file import write_tokens

WAYS: list[tuple[str, str]] = []
TOKEN = "alice-token-0123456789"
PAGE = "http://localhost:4712"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type,mcp-param-x",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("pages")
    write_tokens(folder / "tokens", f"{TOKEN} alice\n")
    settings: JSON = {
        "server": {"tokens": "tokens", "allowed_origins": ["https://app.example.org"]},
        "services": {"browser": {"disabled": True}},
    }
    (folder / "statehold.toml").write_text(toml(settings))
    with serving(folder / "statehold.toml", folder / "data") as running:
        yield running


@pytest.fixture
async def raw(server: Running):
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        yield client


async def test_a_page_in_a_browser_logs_in_with_a_token_and_calls(
    server: Running, headless_shell: str
) -> None:
    body, headers = modern_call("session_list", {})
    headers |= {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    script = """async ([url, body, headers]) => {
      const send = head => fetch(url, { method: "POST", body: JSON.stringify(body), headers: head });
      const { authorization, ...rest } = headers;
      const [refused, answer] = [await send(rest), await send(headers)];
      return [refused.headers.get("www-authenticate"), (await answer.json()).result.structuredContent];
    }"""
    with document_server() as site:
        site.headers, site.body = {"content-type": "text/html"}, b"<p>"
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=headless_shell)
            page = await browser.new_page()
            await page.goto(site.url)
            challenge, result = await page.evaluate(script, [f"{server.url}/mcp", body, headers])
            await browser.close()
    assert challenge.startswith("Bearer")
    assert result["sessions"] == []


@pytest.mark.parametrize("path", matrix("/s/desk/mcp", "/mcp", "/mcp/", "/sse", "/token"))
@pytest.mark.parametrize("origin", matrix("https://app.example.org", PAGE, "http://[::1]:1"))
async def test_a_preflight_of_an_allowed_origin_is_answered(
    raw: httpx2.AsyncClient, path: str, origin: str
) -> None:
    answer = await raw.options(path, headers={**PREFLIGHT, "origin": origin})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == origin
    assert (
        answer.headers["access-control-allow-headers"]
        == PREFLIGHT["access-control-request-headers"]
    )
    assert "DELETE" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    ("path", "headers"),
    matrix(
        ("/api/v1/me", {"origin": PAGE}),
        ("/console/", {"origin": PAGE}),
        ("/health", {"origin": PAGE}),
        ("/mcp", {"origin": "https://evil.example.org"}),
        ("/mcp", {"origin": "https://app.example.org.evil.example.org"}),
        ("/mcp", {"origin": "null"}),
        ("/mcp", {"origin": PAGE, "host": "evil.example.org"}),
        ("/mcp", {}),
    ),
)
@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
async def test_nothing_else_is_readable_by_pages(
    raw: httpx2.AsyncClient, path: str, headers: JSON, method: str
) -> None:
    answer = await raw.request(method, path, headers={**PREFLIGHT, **headers})
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_page_reads_the_id_of_its_transport_session(raw: httpx2.AsyncClient) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "page", "version": "1"},
        },
    }
    headers = {
        "origin": PAGE,
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {TOKEN}",
    }
    answer = await raw.post("/mcp/", json=body, headers=headers)
    assert answer.headers["mcp-session-id"]
    assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["vary"] == "origin"
