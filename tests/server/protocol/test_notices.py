"""The notice of a loss reaches clients that show the content, and clients that show structured content only."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from support.gateway_process import (
    JSON,
    code_of,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
    toml,
)
from support.selection import matrix

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.calls.notices import accepts_notice
from statehold.sessions.services import ToolSpec


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gateway]:
    tmp_path = tmp_path_factory.mktemp("notices")
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"asking": service("asking", "--era", "legacy")}}))
    flags = {"data": str(tmp_path / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as gateway:
        await gateway.probes.ready()
        yield gateway


@pytest.fixture(scope="module", params=matrix("auto", "legacy"))
async def client(request: pytest.FixtureRequest, gateway: Gateway) -> AsyncGenerator[Client]:
    mcp_server = StateholdServer(gateway, version="0")
    async with Client(mcp_server, cache=None, mode=request.param) as connected:
        yield connected


async def lost_session(client: Client) -> str:
    """Return a session whose counter is lost."""
    await client.list_tools()
    session = await opened_session(client)
    assert structured(await client.call_tool("inc", {"session_id": session}))["count"] == 1
    await client.call_tool("crash", {"session_id": session})
    return session


@pytest.mark.parametrize("tool", ["inc", "open_inc"])
async def test_structured_content_repeats_the_note(client: Client, tool: str) -> None:
    session = await lost_session(client)
    result = await client.call_tool(tool, {"session_id": session})
    note = structured(result).pop("statehold_notice")
    assert "generation 1 to 2" in note
    assert note == meta_of(result)["statehold/notice"]
    again = await client.call_tool(tool, {"session_id": session})
    assert structured(again)["count"] == 2
    assert "statehold_notice" not in structured(again)


async def test_a_call_whose_schema_has_no_place_for_the_note_runs_with_the_note_in_its_content(
    client: Client,
) -> None:
    session = await lost_session(client)
    result = await client.call_tool("closed_inc", {"session_id": session})
    assert structured(result) == {"count": 1}
    note = meta_of(result)["statehold/notice"]
    assert "generation 1 to 2" in note
    assert [getattr(block, "text", None) for block in result.content] == [f"1\n\n{note}"]


async def test_the_note_is_a_member_of_a_json_object(client: Client) -> None:
    session = await lost_session(client)
    result = await client.call_tool("echo", {"session_id": session, "a": 1})
    content = json.loads(text_of(result))
    assert content["arguments"] == {"a": 1}
    assert content["statehold_notice"] == meta_of(result)["statehold/notice"]
    assert len(result.content) == 1


@pytest.fixture(params=matrix("auto", "legacy"))
async def structured_only(
    request: pytest.FixtureRequest, gateway: Gateway
) -> AsyncGenerator[Client]:
    """A client that shows structured content alone."""
    info = types.Implementation(name="claude-code", version="2.1.280")
    mcp_server = StateholdServer(gateway, version="0")
    async with Client(mcp_server, cache=None, mode=request.param, client_info=info) as connected:
        yield connected


@pytest.mark.parametrize("meta", [None, {"statehold/operation_id": "one"}])
async def test_a_client_that_shows_structured_content_alone_is_refused_once_with_the_note(
    structured_only: Client, meta: Any
) -> None:
    client = structured_only
    session = await lost_session(client)
    arguments = {"session_id": session}
    refused = await client.call_tool("closed_inc", arguments, meta=meta)
    assert code_of(refused) == "connection_lost"
    assert meta_of(refused)["statehold/error"]["retryable"]
    assert "generation 1 to 2" in text_of(refused)
    assert "not run" in text_of(refused)
    result = await client.call_tool("closed_inc", arguments, meta=meta)
    assert structured(result) == {"count": 1}


async def test_the_schemas_of_our_own_tools_have_a_place_for_the_note(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        if tool.name.startswith(("session_", "state_")):
            assert accepts_notice(ToolSpec(tool.name, {"outputSchema": tool.output_schema}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "allOf": [{"additionalProperties": False}]},
        {"type": "object", "maxProperties": 1},
        {"type": "object", "unevaluatedProperties": False},
        {"$ref": "#/$defs/x"},
    ],
)
def test_a_schema_that_may_forbid_a_member_has_no_place(schema: JSON) -> None:
    assert not accepts_notice(ToolSpec("tool", {"outputSchema": schema}))
