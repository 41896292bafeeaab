"""Three ways to name a session: by an argument, by the URL or command line, or not at all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    Way,
    code_of,
    count,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
)
from support.selection import matrix

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer


@pytest.fixture(scope="module")
def settings() -> JSON:
    eager = service("quick", prefix="eager_", include=["inc"], connect="eager")
    own = service("asking", "--own-session", include=["own_session"])
    return {"services": {"quick": service("asking"), "eager": eager, "own": own}}


@asynccontextmanager
async def pinned(way: Way, name: str) -> AsyncGenerator[Client]:
    """A connection whose session is `name`, by the URL or the command line."""
    if way.transport == "stdio":
        way = Way("stdio", way.era, way.config, way.data, options=("--session", name))
        async with way.connect() as client:
            yield client
    else:
        async with way.connect(path=f"/s/{name}/mcp") as client:
            yield client


@pytest.fixture(scope="module", params=matrix("http", "stdio"))
def pinning(request: pytest.FixtureRequest, http: Way) -> Way:
    """The transports that can pin a session, in both eras."""
    if request.param == "http":
        return http
    return Way("stdio", http.era, http.config, http.data)


async def pinned_count(client: Client) -> int:
    return structured(await client.call_tool("inc", {}))["count"]


# Pinned.


async def test_tools_of_a_pinned_session_have_no_session_argument(pinning: Way) -> None:
    async with pinned(pinning, f"schemas {pinning.era}") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert not {"session_create", "session_list"} & tools.keys()
        assert {"session_info", "session_close", "inc", "own_session"} <= tools.keys()
        for tool in tools.values():
            properties: JSON = tool.input_schema.get("properties", {})
            assert "statehold_session_id" not in properties
            assert "session_id" not in tool.input_schema.get("required", [])
            if tool.name != "own_session":
                assert "session_id" not in properties
        own = await client.call_tool("own_session", {"session_id": "theirs"})
        assert structured(own) == {"session_id": "theirs"}
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("session_create", {})


async def test_a_pinned_session_is_created_on_first_use_and_survives_reconnects(http: Way) -> None:
    name = f"pinned {http.era} \u00e9"
    ids: set[str] = set()
    for expected in (1, 2, 3):
        async with pinned(http, name) as client:
            result = await client.call_tool("inc", {}, meta=ASKS_SESSION)
            assert structured(result)["count"] == expected
            session = meta_of(result)["statehold/session"]
            assert session["name"] == name
            ids.add(session["id"])
    assert len(ids) == 1
    # The same session by its id, and as an argument.
    async with pinned(http, ids.copy().pop()) as client:
        assert await pinned_count(client) == 4
    async with http.connect() as client:
        assert await count(client, name) == 5
    if http.era == "modern":
        sse = Way("sse", "legacy", http.config, http.data, url=http.url)
        async with sse.connect() as client:
            assert await count(client, ids.pop()) == 6


@pytest.mark.thorough
async def test_a_pinned_stdio_server_finds_its_session_again(
    config_file: Path, tmp_path: Path
) -> None:
    way = Way("stdio", "legacy", config_file, tmp_path)
    ids: list[str] = []
    for generation in (1, 2):
        async with pinned(way, "desk") as client:
            info = structured(await client.call_tool("session_info", {}))
            ids.append(info["session_id"])
            assert info["name"] == "desk"
            result = await client.call_tool("inc", {}, meta=ASKS_SESSION)
            assert meta_of(result)["statehold/session"]["generation"] == generation
    assert ids[0] == ids[1]


async def test_many_first_calls_at_once_create_one_pinned_session(http: Way) -> None:
    name = f"at once {http.era}"
    ids: list[str] = []

    async def one() -> None:
        async with pinned(http, name) as client:
            result = await client.call_tool("inc", {}, meta=ASKS_SESSION)
            ids.append(meta_of(result)["statehold/session"]["id"])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
    assert len(ids) == 5
    assert len(set(ids)) == 1


async def test_our_own_tools_work_on_the_pinned_session_only(http: Way) -> None:
    async with http.connect() as client:
        other = await opened_session(client)
    async with pinned(http, f"own tools {http.era}") as client:
        first = structured(await client.call_tool("session_info", {}))["session_id"]
        assert first != other
        assert structured(await client.call_tool("session_restart", {}))["session_id"] == first
        assert await pinned_count(client) == 1
        # An argument that the schema does not have leads nowhere else.
        closed = structured(await client.call_tool("session_close", {"session_id": other}))
        assert closed["session_id"] == first
        # The next call begins anew, and says so.
        result = await client.call_tool("inc", {})
        assert structured(result)["count"] == 1
        assert meta_of(result)["statehold/session"]["id"] not in (first, other)
        assert "this is a new session" in meta_of(result)["statehold/notice"]


@pytest.mark.parametrize("name", ["sh_aaaaaaaaaaaaaaaaaaaaaaaaaa", "x" * 129])
async def test_a_name_that_cannot_be_a_session_is_an_error(http: Way, name: str) -> None:
    async with pinned(http, name) as client:
        assert (await client.list_tools()).tools
        for tool in ("inc", "session_info"):
            assert code_of(await client.call_tool(tool, {})) in (
                "session_not_found",
                "invalid_argument",
            )


# Nothing named.


@pytest.fixture(scope="module")
async def automatic(
    config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Gateway]:
    flags: JSON = {
        "data": str(tmp_path_factory.mktemp("automatic")),
        "server": {"auto_session": True},
    }
    async with open_gateway(
        load(config=config_file, services=None, flags=flags), address="test"
    ) as gateway:
        yield gateway


async def test_each_legacy_connection_has_a_session_of_its_own(automatic: Gateway) -> None:
    mcp_server = StateholdServer(automatic, version="0")
    async with Client(mcp_server, mode="legacy", cache=None) as watching:
        async with (
            Client(mcp_server, mode="legacy", cache=None) as one,
            Client(mcp_server, mode="legacy", cache=None) as two,
        ):
            # The first answer names the session that its caller did not create itself.
            mine = meta_of(await one.call_tool("get", {}))["statehold/session"]["id"]
            other = meta_of(await two.call_tool("get", {}))["statehold/session"]["id"]
            assert "statehold/session" not in meta_of(await one.call_tool("get", {}))
            assert [await pinned_count(c) for c in (one, one, two, one)] == [1, 2, 1, 3]
            assert mine != other
            # A session that is named is used, as everywhere.
            named = await opened_session(one)
            assert await count(one, named) == 1
            tool = next(t for t in (await one.list_tools()).tools if t.name == "inc")
            assert "session_id" in tool.input_schema["properties"]
            assert "session_id" not in tool.input_schema.get("required", [])
        for session in (mine, other):
            info = structured(await watching.call_tool("session_info", {"session_id": session}))
            assert (info["status"], info["reason"]) == ("closed", "connection_closed")
        info = structured(await watching.call_tool("session_info", {"session_id": named}))
        assert info["status"] == "idle"


@pytest.mark.thorough
async def test_our_own_tools_take_the_session_of_the_connection_too(automatic: Gateway) -> None:
    async with Client(StateholdServer(automatic, version="0"), mode="legacy", cache=None) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "session_id" not in tools["session_info"].input_schema.get("required", [])
        first = structured(await client.call_tool("session_info", {}))["session_id"]
        assert await pinned_count(client) == 1
        assert structured(await client.call_tool("session_pause", {}))["session_id"] == first
        assert await pinned_count(client) == 2
        closed = structured(await client.call_tool("session_close", {}))
        assert closed["session_id"] == first
        assert await pinned_count(client) == 1
        second = structured(await client.call_tool("session_info", {}))["session_id"]
        assert second != first


@pytest.mark.thorough
async def test_calls_at_once_of_a_new_connection_share_its_session(automatic: Gateway) -> None:
    async with Client(StateholdServer(automatic, version="0"), mode="legacy", cache=None) as client:
        counts: list[int] = []

        async def one() -> None:
            counts.append(await pinned_count(client))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
        assert sorted(counts) == [1, 2, 3, 4, 5]


async def test_a_modern_call_has_to_name_its_session(automatic: Gateway) -> None:
    async with Client(StateholdServer(automatic, version="0"), cache=None) as client:
        for tool in (await client.list_tools()).tools:
            if tool.name in ("inc", "session_info"):
                assert tool.input_schema["required"] == ["session_id"]
        result = await client.call_tool("inc", {})
        assert code_of(result) == "session_not_found"
        assert "call session_create" in text_of(result)


# As a header too.


@pytest.fixture(scope="module")
async def routed(
    config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Gateway]:
    flags: JSON = {
        "data": str(tmp_path_factory.mktemp("routed")),
        "server": {"session_header": True},
    }
    async with open_gateway(
        load(config=config_file, services=None, flags=flags), address="test"
    ) as gateway:
        yield gateway


async def test_the_session_is_marked_as_a_header_that_a_proxy_can_route_by(routed: Gateway) -> None:
    for mode in ("auto", "legacy"):
        async with Client(StateholdServer(routed, version="0"), mode=mode, cache=None) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name in ("inc", "session_info", "eager_inc"):
                marked: JSON = tools[name].input_schema["properties"]["session_id"]
                assert marked["type"] == "string"
                assert marked["x-mcp-header"] == "Session-Id"
            theirs: JSON = tools["own_session"].input_schema["properties"]
            assert theirs["statehold_session_id"]["x-mcp-header"] == "Session-Id"
            assert "x-mcp-header" not in theirs["session_id"]
