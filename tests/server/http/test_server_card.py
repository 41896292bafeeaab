"""The card of the server and the catalog with it, which clients read before they connect, also where tokens are needed."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from support.gateway_process import JSON, service, serving, toml
from support.token_file import write_tokens

WAYS: list[tuple[str, str]] = []
CARD, CATALOG = "/mcp/server-card", "/.well-known/ai-catalog.json"


@pytest.mark.parametrize("public_url", [None, "https://mcp.example.org"])
async def test_everybody_reads_where_the_server_is_and_nothing_else(
    tmp_path: Path, public_url: str | None
) -> None:
    write_tokens(tmp_path / "tokens", "alice-token-0123456789 alice\n")
    server: JSON = {"tokens": "tokens"} | ({"public_url": public_url} if public_url else {})
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"server": server, "services": {"payroll": service("quick")}}))
    with serving(config, tmp_path / "data") as running:
        url = public_url or running.url
        async with httpx2.AsyncClient(base_url=running.url, timeout=60) as raw:
            pages = {"origin": "https://page.example.com"}
            card, catalog = [await raw.get(path, headers=pages) for path in (CARD, CATALOG)]
            assert (await raw.get(CARD, headers={"host": "evil.example"})).status_code == 421
    assert card.headers["content-type"] == "application/mcp-server-card+json"
    assert catalog.headers["content-type"] == "application/ai-catalog+json"
    for answer in (card, catalog):
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "payroll" not in answer.text
        assert "quick" not in answer.text
    assert card.json()["remotes"] == [{"type": "streamable-http", "url": f"{url}/mcp"}]
    (entry,) = catalog.json()["entries"]
    assert entry["url"] == f"{url}{CARD}"
    if public_url:
        assert card.json()["name"] == "org.example.mcp/statehold"
        assert entry["identifier"] == "urn:air:mcp.example.org:mcp:statehold"
    assert len(json.dumps(card.json()["description"])) < 103
