"""The metadata by which clients find the issuer, and the challenges that lead to it."""

from __future__ import annotations

import httpx2
import pytest
from support.gateway_process import JSON, Running
from support.hostile_issuer import HostileIssuer

from statehold.access.challenges import METADATA, PublicUrls
from statehold.access.claims import normal_resource

URL = "https://mcp.example.org"


async def document(raw: httpx2.AsyncClient, path: str, **headers: str) -> JSON:
    answer = await raw.get(f"{METADATA}{path}", headers=headers)
    assert answer.status_code == 200, path
    assert answer.headers["access-control-allow-origin"] == "*"
    return answer.json()


async def test_the_metadata_has_what_a_client_needs(
    raw: httpx2.AsyncClient, issuer: HostileIssuer, asked_issuer: HostileIssuer
) -> None:
    for path in ("", "/mcp", "/sse", "/s/desk/mcp", "/s/never%20opened%2Fx/mcp"):
        assert await document(raw, path) == {
            "resource": f"{URL}{path}",
            "resource_name": "Statehold",
            "authorization_servers": [issuer.url, asked_issuer.url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["statehold:use"],
        }


async def test_the_metadata_is_the_same_for_every_page_and_every_proxy(
    raw: httpx2.AsyncClient,
) -> None:
    plain = await document(raw, "/mcp")
    page = await document(raw, "/mcp", origin="https://page.example.com")
    proxied = await document(
        raw,
        "/mcp",
        host="mcp.example.org",
        **{"x-forwarded-host": "evil.example", "x-forwarded-proto": "http"},
    )
    assert plain == page == proxied
    options = await raw.options(f"{METADATA}/mcp", headers={"origin": "https://page.example.com"})
    assert options.headers["access-control-allow-origin"] == "*"
    evil = await raw.get(f"{METADATA}/mcp", headers={"host": "evil.example"})
    assert evil.status_code == 421


@pytest.mark.parametrize("path", ["/other", "/s/mcp", "/s//mcp", "/s/a/b/mcp", "/mcp/x", "x"])
async def test_other_paths_have_no_metadata(raw: httpx2.AsyncClient, path: str) -> None:
    answer = await raw.get(f"{METADATA}{path}")
    assert answer.status_code in (401, 404)


async def test_a_challenge_names_the_metadata_of_its_path(raw: httpx2.AsyncClient) -> None:
    for path, resource in (
        ("/mcp", "/mcp"),
        ("/s/desk/mcp", "/s/desk/mcp"),
        ('/s/"quoted",x="y/mcp', "/s/%22quoted%22,x=%22y/mcp"),
        ("/mcp/", "/mcp"),
        ("/s/desk/mcp/", "/s/desk/mcp"),
        ("/nowhere", ""),
    ):
        answer = await raw.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == (
            f'Bearer scope="statehold:use", resource_metadata="{URL}{METADATA}{resource}"'
        )


async def test_a_token_file_alone_gives_no_metadata(server: Running) -> None:
    urls = PublicUrls("")
    assert urls.metadata("/mcp") is None


def test_the_public_url_may_have_a_path() -> None:
    urls = PublicUrls("https://example.org/tools")
    assert urls.metadata("/mcp") == f"https://example.org{METADATA}/tools/mcp"
    assert urls.resource("/mcp") == "https://example.org/tools/mcp"
    for path in ("/tools/mcp", "/mcp"):
        assert urls.path_of(f"{METADATA}{path}") == "/mcp"
    assert urls.path_of(f"{METADATA}/toolsmith/mcp") == "/toolsmith/mcp"


def test_an_audience_is_compared_as_a_url() -> None:
    assert normal_resource("HTTPS://Mcp.Example.org/") == "https://mcp.example.org"
    for path in ("/mcp", "/mcp/", "/sse", "/s/desk/mcp", "/s/a%2Fb/mcp/"):
        assert normal_resource(f"https://mcp.example.org:443{path}") == f"{URL}/mcp"
    assert normal_resource("https://mcp.example.org/tools/s/x/mcp") == f"{URL}/tools/mcp"
    assert normal_resource("https://mcp.example.org/Mcp") == "https://mcp.example.org/Mcp"
    assert normal_resource("https://mcp.example.org:80/") == "https://mcp.example.org:80"
    assert normal_resource("https://mcp.example.org/mcp//") == "https://mcp.example.org/mcp/"
    assert normal_resource("api://Statehold/") == "api://Statehold/"
