"""The rows of the comparison. A new one is an entry of `PEERS`, and a folder with its lock file."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from pathlib import Path
from typing import Final

import httpx2
import jwt

from ..plan import COUNTER, python
from .gateway import Gateway, Place

COMMAND: Final = python(COUNTER)
SECRET: Final = "bench-of-gateways-0123456789-ABCDEFGH"
OPEN_REGISTRY: Final = {
    "AUTH_REQUIRED": "false",
    "AUTH_ENCRYPTION_SECRET": SECRET,
    "JWT_SECRET_KEY": SECRET,
    "LOG_LEVEL": "ERROR",
    "SSRF_ALLOW_LOCALHOST": "true",
}
"""Variables of ContextForge: clients need no login; the API needs a token of an administrator."""


async def register_counter(place: Place) -> None:
    """Make the counter known to ContextForge, which connects to it. After a restart it knows it already."""
    name, now = "admin@example.com", int(time.time())
    claims = {"sub": name, "iss": "mcpgateway", "aud": "mcpgateway-api", "teams": None}
    unique = {"iat": now, "exp": now + 3600, "jti": secrets.token_hex(16)}
    user = {"email": name, "is_admin": True, "auth_provider": "cli"}
    token = jwt.encode({**claims, **unique, "user": user}, SECRET, algorithm="HS256")
    counter = {"name": "counter", "url": place.counter_url, "visibility": "public"}
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        await client.post(
            f"http://127.0.0.1:{place.port}/gateways",
            json={**counter, "transport": "STREAMABLEHTTP"},
            headers={"authorization": f"Bearer {token}"},
        )


def client_config(place: Place) -> str:
    """Write a file as MCP clients have it, with the counter, and return its path."""
    program, *arguments = COMMAND
    return _write(place, {"mcpServers": {"counter": {"command": program, "args": arguments}}})


def agentgateway_config(place: Place) -> str:
    program, *arguments = COMMAND
    target = {"name": "counter", "stdio": {"cmd": program, "args": arguments}}
    routes = [{"backends": [{"mcp": {"targets": [target]}}]}]
    return _write(place, {"binds": [{"port": place.port, "listeners": [{"routes": routes}]}]})


def _write(place: Place, settings: object) -> str:
    place.folder.mkdir(parents=True, exist_ok=True)
    file = place.folder / "gateway.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    return str(file)


FASTMCP: Final = ("--no-banner", "--skip-env", "--log-level", "ERROR")
LOCAL: Final = ("--host", "127.0.0.1")
PEERS: Final = (
    Gateway(
        "direct",
        package="mcp",
        script=Path(COMMAND[0]).name,
        is_modern=True,
        stdio=lambda place: COMMAND[1:],
        http=lambda place: [*COMMAND[1:], "--transport", "http", *place.listen],
    ),
    Gateway(
        "fastmcp",
        is_modern=True,
        stdio=lambda place: ["run", client_config(place), *FASTMCP],
        http=lambda place: [
            *("run", client_config(place), "--transport", "http", *LOCAL, *place.listen, *FASTMCP)
        ],
    ),
    Gateway(
        "mcp-proxy", http=lambda place: [*place.listen, "--log-level", "ERROR", "--", *COMMAND]
    ),
    Gateway(
        "mcp-proxy-npm",
        package="mcp-proxy",
        script="mcp-proxy",
        is_modern=True,
        http=lambda place: [*LOCAL, *place.listen, "--server", "stream", "--", *COMMAND],
    ),
    Gateway(
        "supergateway",
        is_modern=True,
        http=lambda place: [
            *("--stdio", shlex.join(COMMAND), "--outputTransport", "streamableHttp", "--stateful"),
            *(*place.listen, "--logLevel", "none"),
        ],
    ),
    Gateway(
        "mcp-remote",
        connects=True,
        is_modern=True,
        stdio=lambda place: [place.counter_url, "--transport", "http-only", "--allow-http"],
    ),
    Gateway("mcp-stdio", connects=True, stdio=lambda place: [place.counter_url]),
    Gateway(
        "contextforge",
        package="mcp-contextforge-gateway",
        script="mcpgateway",
        connects=True,
        environment=OPEN_REGISTRY,
        http=lambda place: [*LOCAL, *place.listen],
        prepare=register_counter,
    ),
    # Its proxy alone: the servers that it starts itself need containers.
    Gateway(
        "toolhive",
        variable="STATEHOLD_BENCH_TOOLHIVE",
        connects=True,
        is_modern=True,
        http=lambda place: [
            *("proxy", "counter", "--target-uri", place.counter_url.removesuffix("/mcp")),
            *(*LOCAL, *place.listen),
        ],
    ),
    Gateway(
        "agentgateway",
        variable="STATEHOLD_BENCH_AGENTGATEWAY",
        is_modern=True,
        http=lambda place: ["-f", agentgateway_config(place)],
    ),
    Gateway(
        "mcp-proxy-rust",
        variable="STATEHOLD_BENCH_MCP_PROXY_RUST",
        connects=True,
        is_modern=True,
        stdio=lambda place: [place.counter_url],
    ),
)
