"""The client of the conformance suite in its scenarios of logins: `python -m support.conformance_login SOCKET URL`.

It is a Statehold with the URL as its one service, which the fork server at the socket forks, and an MCP client of it that
opens the addresses it is asked to open, as the browser of a person does, and calls the one tool that there is.
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
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from .fork_server import ForkServer
from .gateway_process import opened_session, statehold, text_of, toml
from .waiting import until

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The address of a client metadata document that the suite knows."""
TOOL: Final = "test-tool"
ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+/login/[\w-]+")
MAX_LOGINS: Final = 3
"""How often a person logs in before they give up."""


async def issuer_of(url: str) -> str:
    """Return the authorization server of a service, as its operator knows it."""
    parts = httpx2.URL(url)
    where = parts.copy_with(path=f"/.well-known/oauth-protected-resource{parts.path}")
    async with httpx2.AsyncClient() as http:
        return (await http.get(where)).json()["authorization_servers"][0]


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
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = cast("dict[str, str]", json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))
    ForkServer.current = ForkServer(Path(sys.argv[1]))
    anyio.run(run_through, sys.argv[2], scenario, context)


if __name__ == "__main__":
    main()
