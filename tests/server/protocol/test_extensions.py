"""Extensions (SEP-2133) in both directions: those of clients reach services, and those of services reach clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from support.fork_server import ForkServer
from support.gateway_process import JSON, UPSTREAMS, opened_session, text_of
from support.open_gateways import serving_gateway
from support.selection import matrix

from statehold.server.protocol.server import StateholdServer

UI = "io.modelcontextprotocol/ui"
TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"
MIME = "text/html;profile=mcp-app"
OTHER_MIME = "text/html;profile=other"


@pytest.fixture(params=["modern", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def extended(fork_server: ForkServer, era: str) -> JSON:
    """The server with extensions, in an era."""
    return fork_server.service(str(UPSTREAMS / "extended.py"), "--era", era)


@pytest.fixture(params=matrix("auto", "legacy"))
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


def extensions_of(client: Client) -> JSON:
    assert client.server_capabilities is not None
    return client.server_capabilities.extensions or {}


@pytest.mark.parametrize("pinned_name", matrix(None, "pinned"))
async def test_extensions_reach_the_other_side(
    tmp_path: Path, extended: JSON, era: str, mode: Any, pinned_name: str | None
) -> None:
    async with (
        serving_gateway(tmp_path, one=extended) as gateway,
        Client(
            StateholdServer(gateway, version="0", pinned_name=pinned_name), cache=None, mode=mode
        ) as client,
    ):
        # The SDK's servers declare extensions in the modern era only.
        if era == "modern":
            assert extensions_of(client)[UI] == {"mimeTypes": [MIME], "flag": True}
            assert ("example.org/skills" in extensions_of(client)) == (pinned_name is not None)
            assert (TASKS in extensions_of(client)) == (mode == "auto")
        pages = {
            tool.name: (tool.meta or {})["ui"]["resourceUri"]
            for tool in (await client.list_tools()).tools
            if "ui" in (tool.meta or {})
        }
        assert list(pages) == ["show"]


async def test_settings_of_several_services_are_united(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    program = str(UPSTREAMS / "extended.py")
    first = fork_server.service(program)
    second = fork_server.service(program, "--mime", OTHER_MIME)
    async with (
        serving_gateway(tmp_path, one=first, two={**second, "prefix": "two_"}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        assert extensions_of(client)[UI] == {"mimeTypes": [MIME, OTHER_MIME], "flag": True}
        assert extensions_of(client).keys() == {UI, SKILLS, TASKS}


@pytest.mark.parametrize(
    ("required", "words"),
    matrix(
        ({"elicitation": {}}, "elicitation"),
        ({"extensions": {TASKS: {}, UI: {}}, "roots": {}}, f"declare roots, {UI}"),
    ),
)
async def test_the_error_for_a_missing_capability_names_the_side_that_lacks_it(
    tmp_path: Path,
    fork_server: ForkServer,
    mode: Any,
    required: JSON,
    words: str,
) -> None:
    service = fork_server.service(str(UPSTREAMS / "extended.py"))
    async with (
        serving_gateway(tmp_path, one=service) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None, mode=mode) as client,
    ):
        session = await opened_session(client)

        async def call(needs: JSON) -> types.CallToolResult:
            arguments = {"session_id": session, "capabilities": needs}
            return await client.call_tool("needs", arguments)

        assert text_of(await call({"extensions": {TASKS: {}}})) == "done"
        with pytest.raises(MCPError) as raised:
            await call(required)
        assert raised.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
        assert words in raised.value.error.message


async def test_a_discovery_is_kept_only_when_all_services_are_known(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    service = fork_server.service(str(UPSTREAMS / "extended.py"))
    async with serving_gateway(tmp_path, one=service) as gateway:
        mcp_server = StateholdServer(gateway, version="0")
        async with Client(mcp_server, cache=None) as client:
            result = await client.session.discover()
            assert isinstance(result, types.DiscoverResult)
            assert result.ttl_ms > 0
    missing = {"command": "/nowhere/at/all"}
    (tmp_path / "b").mkdir()
    async with (
        serving_gateway(tmp_path / "b", one=service, two=missing) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        assert (await client.session.discover()).ttl_ms == 0
