"""The tool list is the same for every caller that asks in the same way, and valid for clients of both eras."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from support.gateway_process import (
    IN_PROCESS,
    JSON,
    Way,
    count,
    opened_session,
    service,
    structured,
    text_of,
    toml,
)
from support.selection import matrix_of

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

WAYS = matrix_of(IN_PROCESS)
OWN = [
    "session_create",
    "session_list",
    "session_info",
    "session_close",
    "session_pause",
    "session_resume",
    "session_extend",
    "session_restart",
    "session_rename",
    "session_bind",
    "session_unbind",
    "session_request_human",
    "state_get",
    "state_update",
    "session_history",
    "session_note",
    "session_run",
    "session_summary",
    "session_fork",
    "session_merge",
]


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {
        "services": {
            "quick": service("asking", exclude=["crash", "hang", "spawn"]),
            "second": service("quick", prefix="second_", include=["inc", "get", "absent"]),
            "broken": service("bad", "invalid-schema", prefix="broken_"),
            "own": service(
                "asking", "--own-session", prefix="own_", include=["own_session", "get", "shaped"]
            ),
        }
    }


async def listed(client: Client) -> list[types.Tool]:
    return (await client.list_tools()).tools


def wire(tools: list[types.Tool]) -> list[JSON]:
    return [tool.model_dump(by_alias=True, exclude_unset=True, mode="json") for tool in tools]


async def test_the_list_is_ours_first_then_each_service_in_its_order(client: Client) -> None:
    names = [tool.name for tool in await listed(client)]
    assert names[: len(OWN)] == OWN
    others = names[len(OWN) :]
    assert others[:3] == ["inc", "get", "echo"]
    assert not {"crash", "hang", "spawn"} & set(others)
    assert [name for name in others if name.startswith("second_")] == ["second_inc", "second_get"]
    assert len(set(names)) == len(names)


async def test_every_tool_takes_the_session_first_as_a_required_plain_string(
    client: Client,
) -> None:
    for tool in await listed(client):
        if tool.name in ("session_create", "session_list"):
            assert "session_id" not in tool.input_schema.get("properties", {})
            continue
        # All tools of a service have the same name for it.
        argument = "statehold_session_id" if tool.name.startswith("own_") else "session_id"
        properties: JSON = tool.input_schema["properties"]
        assert next(iter(properties)) == argument
        assert properties[argument]["type"] == "string"
        assert not {"anyOf", "oneOf", "default", "x-mcp-header"} & properties[argument].keys()
        assert tool.input_schema["required"][0] == argument
        assert tool.input_schema["required"].count(argument) == 1
        Draft202012Validator.check_schema(tool.input_schema)
        if tool.name == "own_own_session":
            assert properties["session_id"] == {"type": "string"}


async def test_our_own_tools_are_described(client: Client) -> None:
    own = {tool.name: tool for tool in await listed(client) if tool.name in OWN}
    for tool in own.values():
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.title
    described = {name: tool.output_schema for name, tool in own.items() if tool.output_schema}
    assert described.keys() == {"session_create", "state_get", "state_update"}
    for schema in described.values():
        Draft202012Validator.check_schema(schema)
    hints = {name: tool.annotations for name, tool in own.items()}
    assert hints["session_list"] is not None
    assert hints["session_list"].read_only_hint
    assert hints["session_close"] is not None
    assert hints["session_close"].destructive_hint
    text = own["session_create"].description or ""
    assert "15 minutes" in text
    assert "30 days" in text
    assert "quick, second, broken" in text


PEER_TOKENS = 5071
"""Tokens (characters / 4) of the whole tool list of @playwright/mcp 0.0.83; benchmarks compare with it in the same run."""
PINNED = [
    *("session_info", "session_close", "session_restart", "session_request_human"),
    *("state_get", "state_update", "session_summary"),
]


@pytest.mark.parametrize(("pinned", "times"), [("p", 1.1), (None, 1.5)])
async def test_the_default_list_costs_little_more_than_that_of_the_peer(
    tmp_path: Path, pinned: str | None, times: float
) -> None:
    loaded = load(config=None, services=None, flags={"data": str(tmp_path / "data")})
    async with open_gateway(loaded, address="test") as gateway:
        await gateway.probes.ready()
        server = StateholdServer(gateway, version="0", pinned_name=pinned)
        async with Client(server, cache=None, mode="legacy") as client:
            tools = wire(await listed(client))
    text = json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":"))
    assert len(text) / 4 <= times * PEER_TOKENS
    own = [tool["name"] for tool in tools if not tool["name"].startswith("browser_")]
    assert own == (OWN if pinned is None else PINNED)


async def test_a_pinned_session_offers_the_toolsets_that_the_configuration_names(
    tmp_path: Path,
) -> None:
    flags: JSON = {"data": str(tmp_path / "data"), "toolsets": "core,lifecycle"}
    loaded = load(config=None, services=None, flags=flags)
    async with open_gateway(loaded, address="test") as gateway:
        server = StateholdServer(gateway, version="0", pinned_name="p")
        async with Client(server, cache=None) as client:
            names = {tool.name for tool in await listed(client)}
            assert structured(await client.call_tool("session_pause", {}))["status"] == "paused"
    assert {"session_info", "session_pause", "session_bind"} <= names
    assert not {"session_create", "session_list", "session_rename", "state_get"} & names


async def test_a_broken_tool_is_repaired_or_dropped_alone(client: Client) -> None:
    tools = {tool.name: tool for tool in await listed(client)}
    broken = {name for name in tools if name.startswith("broken_")}
    assert broken == {
        f"broken_{name}"
        for name in (
            "no_schema",
            "array_schema",
            "wrong_type",
            "empty_schema",
            "inc",
            "get",
            "bad_properties",
            "bad_hints",
        )
    }
    assert tools["broken_bad_hints"].annotations is None
    session = await opened_session(client)
    assert await count(client, session, "broken_inc") == 1


async def test_the_list_does_not_depend_on_sessions(client: Client) -> None:
    before = wire(await listed(client))
    session = await opened_session(client, services=["second"])
    assert await count(client, session, "second_inc") == 1
    assert wire(await listed(client)) == before
    await client.call_tool("session_close", {"session_id": session})
    assert wire(await listed(client)) == before


async def test_an_excluded_tool_cannot_be_called(client: Client) -> None:
    session = await opened_session(client)
    for name in ("crash", "second_echo", "second_inc_"):
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool(name, {"session_id": session})


async def test_an_unknown_cursor_is_refused(client: Client) -> None:
    with pytest.raises(MCPError) as error_info:
        await client.list_tools(cursor="garbage")
    assert error_info.value.error.code == types.INVALID_PARAMS


async def test_all_ways_see_the_same_list(way: Way, memory: Way) -> None:
    async with way.connect() as one, memory.connect() as other:
        assert wire(await listed(one)) == wire(await listed(other))


async def test_a_session_without_the_service_of_a_tool_says_how_to_add_it(client: Client) -> None:
    session = await opened_session(client, services=["second"])
    result = await client.call_tool("inc", {"session_id": session})
    assert result.is_error
    assert text_of(result).startswith("service_not_bound: ")
    assert "session_bind" in text_of(result)
    structured(await client.call_tool("session_bind", {"session_id": session, "service": "quick"}))
    assert await count(client, session) == 1


# Services that cannot be asked.


async def test_a_tool_of_a_service_that_cannot_be_asked_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call that waits for its turn to start the service does not end.
    monkeypatch.setattr("statehold.server.gateway.probing.CALL_RETRY_SECONDS", 3600.0)
    config = tmp_path / "statehold.toml"
    broken = service("bad", "exit-at-start", prefix="b_", exclude=["off"])
    config.write_text(toml({"services": {"broken": broken, "quick": service("quick")}}))
    flags = {"data": str(tmp_path / "data")}
    async with (
        open_gateway(load(config=config, services=None, flags=flags), address="test") as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        session = await opened_session(client)
        for _ in range(4):
            result = await client.call_tool("b_inc", {"session_id": session})
            assert result.is_error
            assert text_of(result).startswith("service_unavailable: ")
            assert "broken" in text_of(result)
            assert "exited with code" in text_of(result)
        info = structured(await client.call_tool("session_info", {"session_id": session}))
        errors = {each["service"]: each["last_error"] for each in info["services"]}
        assert errors["quick"] is None
        assert "API_KEY is not set" in errors["broken"]
        for name in ("nonsense", "b_off"):
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(name, {"session_id": session})


# Slow services.


@pytest.mark.thorough
async def test_a_hanging_service_delays_neither_the_start_nor_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.server.gateway.probing.LIST_WAIT_SECONDS", 0.2)
    config = tmp_path / "statehold.toml"
    hanging = service("bad", "hang-at-start", prefix="h_")
    config.write_text(toml({"services": {"hanging": hanging, "quick": service("quick")}}))
    flags = {"data": str(tmp_path / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as gateway:
        mcp_server = StateholdServer(gateway, version="0")
        # The hanging one is given up after 30 seconds.
        with anyio.fail_after(15):
            for mode in ("legacy", "auto"):
                async with Client(mcp_server, mode=mode, cache=None) as client:
                    session = await opened_session(client)
                    assert await count(client, session) == 1
                    names = [tool.name for tool in await listed(client)]
                    assert "inc" in names
                    assert not [name for name in names if name.startswith("h_")]


@pytest.mark.thorough
async def test_a_slow_service_is_listed_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.server.gateway.probing.LIST_WAIT_SECONDS", 0.0)
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"slow": service("bad", "slow-start", "0.5")}}))
    flags = {"data": str(tmp_path / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as gateway:
        mcp_server = StateholdServer(gateway, version="0")
        async with Client(mcp_server, cache=None) as client:
            assert [tool.name for tool in await listed(client)] == OWN
            with anyio.fail_after(20):
                async with client.listen(tools_list_changed=True) as changes:
                    session = await opened_session(client)
                    # A call of its tool waits for it; a call of no tool at all does too.
                    assert await count(client, session) == 1
                    await anext(aiter(changes))
            assert "inc" in [tool.name for tool in await listed(client)]
