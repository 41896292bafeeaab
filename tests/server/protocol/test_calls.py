"""Tool calls through Statehold, over every transport in both protocol eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from pydantic import ConfigDict
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    Era,
    Running,
    Transport,
    Way,
    code_of,
    count,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
    without_nulls,
)
from support.own_results import check_own_result
from support.selection import matrix_of

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.server.sdk.caller import CLIENT_INFO
from statehold.sessions.errors import StoreUnavailable

EACH = [
    ("http", "modern"),
    ("sse", "legacy"),
    ("stdio", "modern"),
    ("http", "legacy"),
]
"""The transports that clients use; other modules run in this process."""
WAYS = matrix_of(EACH)
HOP_KEYS = ("progressToken", "io.modelcontextprotocol/", "statehold/")


@pytest.fixture(scope="module")
def settings() -> JSON:
    # The counter's count is saved and restored, so that it survives its process.
    recipe = {"restores": "the count", "loses": "nothing", "checkpoint": 0}
    restored = service("asking", prefix="kept_", include=["inc", "get"], recipe=recipe)
    restored["recipe"]["save"] = [{"tool": "get", "keep": {"count": "/count"}}]
    restored["recipe"]["restore"] = [{"tool": "inc", "arguments": {"n": "{count}"}}]
    own = service("asking", "--own-session", include=["own_session"])
    return {"services": {"quick": service("asking"), "kept": restored, "own": own}}


class Raw(types.Result):
    """A result as it came, without the client's model of one in between."""

    model_config = ConfigDict(extra="allow")


async def raw_call(client: Client, name: str, arguments: JSON) -> JSON:
    params = types.CallToolRequestParams(name=name, arguments=arguments)
    result = await client.session.send_request(types.CallToolRequest(params=params), Raw)
    return result.model_extra or {}


async def test_one_session_counts_on_over_one_connection(client: Client) -> None:
    session = await opened_session(client)
    assert [await count(client, session) for _ in range(3)] == [1, 2, 3]


async def test_a_client_that_connects_for_every_call_counts_on(way: Way) -> None:
    """Over stdio each connection is a separate process, and the count is restored from the snapshot."""
    tool = "kept_inc" if way.transport == "stdio" else "inc"
    session = structured(await way.call("session_create"))["session_id"]
    counts = [structured(await way.call(tool, session_id=session))["count"] for _ in range(3)]
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(("transport", "era"), [("stdio", "modern"), ("sse", "legacy")])
async def test_a_call_is_answered_the_same_over_each_transport(
    server: Running, config_file: Path, tmp_path: Path, transport: Transport, era: Era
) -> None:
    """Check the main properties of calls over one more transport of each era in the quick selection."""
    way = Way(transport, era, config_file, tmp_path, url=server.url)
    async with way.connect() as client:
        session, other = await opened_session(client), await opened_session(client)
        assert [await count(client, each) for each in (session, session, other)] == [1, 2, 1]
        failed = await client.call_tool("fail", {"session_id": session})
        assert (failed.is_error, text_of(failed)) == (True, "it failed")
        with pytest.raises(MCPError, match="not today"):
            await client.call_tool("refuse", {"session_id": session})
        sent: JSON = {"int64": 2**63 - 1, "nothing": None, "text": "\u2028 \x00"}
        echo = await client.call_tool("echo", {"session_id": session, **sent})
        assert json.loads(text_of(echo))["arguments"] == sent
        shaped = await raw_call(client, "shaped", {"session_id": session, "value": [1, None]})
        expected = [1, None] if way.modern else {"result": [1, None]}
        assert shaped["structuredContent"] == expected
        await client.call_tool("session_close", {"session_id": session})
        assert code_of(await client.call_tool("inc", {"session_id": session})) == "session_closed"


async def test_every_result_names_its_session(client: Client, way: Way) -> None:
    session = await opened_session(client)
    for tool in ("session_info", "inc", "session_pause", "session_resume", "inc", "session_close"):
        meta = meta_of(await client.call_tool(tool, {"session_id": session}, meta=ASKS_SESSION))
        session_meta = meta["statehold/session"]
        assert session_meta.keys() - {"epoch"} == {
            "id",
            "name",
            "status",
            "generation",
            "expires_at",
        }
        # Reading a session and ending it need no process that holds it.
        assert ("epoch" in session_meta) is (tool not in ("session_info", "session_close"))
        assert session_meta["id"] == session
        assert ("io.modelcontextprotocol/serverInfo" in meta) is way.modern


async def test_arguments_arrive_exact(client: Client) -> None:
    session = await opened_session(client)
    sent: JSON = {
        "int64": 2**63 - 1,
        "negative": -(2**63),
        "large": 2**80 + 1,
        "float": 0.1,
        "whole_float": 1.0,
        "text": "naïve 漢字 \U0001f600 \u2028 \x00",
        "nothing": None,
        "nested": {"null": None, "list": [None, {"deep": None}, []], "empty": {}},
        "false": False,
    }
    result = await client.call_tool("echo", {"session_id": session, **sent})
    received = json.loads(text_of(result))["arguments"]
    assert received == sent
    assert isinstance(received["whole_float"], float)
    assert list(received) == list(sent)


async def test_meta_is_forwarded_without_the_keys_of_one_hop(client: Client, way: Way) -> None:
    session = await opened_session(client)
    meta: Any = {
        "example.org/own": {"a": [1, None]},
        "statehold/operation_id": "once",
        "io.modelcontextprotocol/own": 1,
    }
    result = await client.call_tool("echo", {"session_id": session}, meta=meta)
    received = json.loads(text_of(result))["_meta"]
    assert received["example.org/own"] == {"a": [1, None]}
    hop = {key for key in received if key.startswith(HOP_KEYS)}
    if not way.modern:
        # The upstream is spoken to as the client speaks.
        assert hop == set()
        return
    names = ("protocolVersion", "clientCapabilities", "clientInfo")
    assert hop == {f"io.modelcontextprotocol/{name}" for name in names}
    assert received[CLIENT_INFO]["name"] == "statehold"


async def test_a_session_argument_of_the_tools_own_passes_untouched(client: Client) -> None:
    session = await opened_session(client)
    result = await client.call_tool(
        "own_session",
        {"session_id": "theirs", "statehold_session_id": session},
        meta=ASKS_SESSION,
    )
    assert structured(result) == {"session_id": "theirs"}
    assert meta_of(result)["statehold/session"]["id"] == session


@pytest.mark.parametrize("value", [[1, None, 2], "text", 5, False, None])
async def test_only_a_legacy_client_gets_structured_content_wrapped(
    client: Client, way: Way, value: Any
) -> None:
    session = await opened_session(client)
    result = await raw_call(client, "shaped", {"session_id": session, "value": value})
    expected = {"result": value} if not way.modern and value is not None else value
    assert result.get("structuredContent") == expected


async def test_a_tools_own_error_is_passed_on_as_it_is(client: Client) -> None:
    session = await opened_session(client)
    result = await client.call_tool("fail", {"session_id": session})
    assert result.is_error
    assert text_of(result) == "it failed"
    assert "statehold/error" not in meta_of(result)


async def test_a_json_rpc_error_of_the_upstream_is_passed_on(client: Client) -> None:
    session = await opened_session(client)
    with pytest.raises(MCPError) as error_info:
        await client.call_tool("refuse", {"session_id": session})
    assert error_info.value.error.model_dump() == {
        "code": -32077,
        "message": "not today",
        "data": {"why": "it is late"},
    }


async def test_a_resource_link_leads_through_the_session(client: Client) -> None:
    session = await opened_session(client)
    result = await client.call_tool("link", {"session_id": session})
    link = result.content[0]
    assert isinstance(link, types.ResourceLink)
    assert str(link.uri) == f"session://{session}/quick/quick%3A%2F%2Fvalue"


# Errors.


async def test_an_error_about_a_missing_session_names_session_create(client: Client) -> None:
    for tool in ("inc", "session_info", "session_close"):
        for arguments in ({}, {"session_id": ""}, {"session_id": None}, {"session_id": 7}):
            result = await client.call_tool(tool, arguments)
            assert code_of(result) in ("session_not_found", "invalid_argument")
            if "session_id" not in arguments:
                assert code_of(result) == "session_not_found"
                assert "call session_create" in text_of(result)


async def test_an_unknown_session_is_an_error_that_a_model_can_act_on(client: Client) -> None:
    for tool in ("inc", "session_info", "session_pause", "session_close"):
        result = await client.call_tool(tool, {"session_id": "sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"})
        assert code_of(result) == "session_not_found"
        assert "session_create" in text_of(result)
        assert "statehold/session" not in meta_of(result)


async def test_a_closed_session_says_so(client: Client) -> None:
    session = await opened_session(client)
    first = structured(await client.call_tool("session_close", {"session_id": session}))
    again = structured(await client.call_tool("session_close", {"session_id": session}))
    assert (first["already_closed"], again["already_closed"]) == (False, True)
    assert code_of(await client.call_tool("inc", {"session_id": session})) == "session_closed"


async def test_a_wrong_argument_of_our_own_tools_is_named(client: Client) -> None:
    wrong: list[tuple[str, JSON, str]] = [
        ("session_create", {"idle_seconds": "soon"}, "idle_seconds"),
        ("session_create", {"idle_seconds": -1}, "idle_seconds"),
        ("session_create", {"name": "a/b"}, "name"),
        ("session_create", {"name": ""}, "name"),
        ("session_create", {"nonsense": 1}, "nonsense"),
        ("session_create", {"services": ["nobody"]}, "nobody"),
        ("session_create", {"metadata": {"long": "x" * 20_000}}, "metadata"),
        ("session_list", {"limit": 0}, "limit"),
        ("session_list", {"cursor": "garbage"}, "cursor"),
        ("session_list", {"statuses": ["asleep"]}, "statuses"),
    ]
    for tool, arguments, named in wrong:
        result = await client.call_tool(tool, arguments)
        assert code_of(result) in ("invalid_argument", "state_invalid"), (tool, arguments)
        assert named in text_of(result)


async def test_metadata_and_state_keep_large_numbers(client: Client) -> None:
    values = {"large": 2**80 + 1, "nothing": None}
    session = await opened_session(client, metadata=values, state=values)
    result = await client.call_tool("session_info", {"session_id": session})
    assert structured(result)["metadata"] == values
    assert json.loads(text_of(result))["metadata"] == values


async def test_an_unknown_tool_is_a_json_rpc_error(client: Client) -> None:
    session = await opened_session(client)
    for name in ("nonsense", "kept_nonsense", "x" * 5000):
        with pytest.raises(MCPError) as error_info:
            await client.session.send_request(
                types.CallToolRequest(
                    params=types.CallToolRequestParams(name=name, arguments={"session_id": session})
                ),
                types.CallToolResult,
            )
        assert error_info.value.error.code == types.INVALID_PARAMS
        assert error_info.value.error.message.startswith("Unknown tool: ")
        assert len(error_info.value.error.message) < 200


async def test_a_session_can_be_named_by_its_name(client: Client, way: Way) -> None:
    name = f"by name, {way.transport} {way.era}: é"
    session = await opened_session(client, name=name)
    for named in (name, name.replace("é", "e\u0301"), session):
        result = await client.call_tool("inc", {"session_id": named}, meta=ASKS_SESSION)
        assert meta_of(result)["statehold/session"]["id"] == session
    assert await count(client, name, "get") == 3
    refused = await client.call_tool("session_create", {"name": name})
    assert code_of(refused) == "name_taken"
    assert meta_of(refused)["statehold/error"]["session_id"] == session
    for tool in ("session_pause", "session_resume", "session_restart", "session_close"):
        assert (
            structured(await client.call_tool(tool, {"session_id": name}))["session_id"] == session
        )


async def test_a_lost_connection_is_reported_once(client: Client) -> None:
    session = await opened_session(client)
    assert await count(client, session) == 1
    crashed = await client.call_tool("crash", {"session_id": session}, meta=ASKS_SESSION)
    assert code_of(crashed) == "outcome_unknown"
    assert meta_of(crashed)["statehold/session"]["id"] == session
    first = await client.call_tool("inc", {"session_id": session})
    second = await client.call_tool("inc", {"session_id": session})
    assert structured(first)["count"] == 1
    text, note = text_of(first).split("\n\n")
    assert text == "1"
    assert meta_of(first)["statehold/session"]["generation"] == 2
    assert "Note from Statehold: " in note
    assert "generation 1 to 2; the process exited with code 3)" in note
    # The last line of its stderr is for the operator.
    assert "crashing" not in note
    assert text_of(second) == "2"
    assert not [key for key in meta_of(second) if key.startswith("statehold/")]


# Our own tools.


async def test_the_results_of_our_own_tools_have_the_form_of_their_models(client: Client) -> None:
    session = await opened_session(
        client,
        services=["quick"],
        state={"a": [1, None]},
        metadata={"for": "this test", "null": None},
        idle_seconds=100,
        paused_seconds=200,
        lifetime_seconds=300,
    )
    one = {"session_id": session}
    calls: list[tuple[str, JSON]] = [
        ("inc", {}),
        ("session_list", {}),
        ("session_info", one),
        ("session_pause", one),
        ("session_info", one),
        ("session_resume", one),
        ("session_extend", {**one, "seconds": 60}),
        ("session_rename", {**one, "name": None}),
        ("session_bind", {**one, "service": "kept"}),
        ("session_unbind", {**one, "service": "kept"}),
        ("session_restart", one),
        ("session_list", {"statuses": ["idle"], "limit": 1}),
        ("session_close", one),
        ("session_info", one),
    ]
    for tool, arguments in calls:
        result = await client.call_tool(tool, {**one, **arguments} if tool == "inc" else arguments)
        content = structured(result)
        if tool.startswith("session_"):
            check_own_result(tool, content)
            # Nulls that the caller stored stay in the text.
            assert without_nulls(json.loads(text_of(result))) == without_nulls(content)


async def test_sessions_are_listed_page_by_page(client: Client, way: Way) -> None:
    prefix = f"page {way.transport} {way.era} "
    created = [await opened_session(client, name=f"{prefix}{n}") for n in range(5)]
    listed: list[str] = []
    cursor = None
    for _ in range(5):
        arguments: JSON = {"name": prefix, "limit": 2}
        if cursor:
            arguments["cursor"] = cursor
        page = structured(await client.call_tool("session_list", arguments))
        listed += [entry["session_id"] for entry in page["sessions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert listed == created[::-1]


async def test_interleaved_calls_of_two_sessions_never_cross(client: Client) -> None:
    await interleave(client, sessions=2, calls=4)


@pytest.mark.thorough
async def test_sessions_never_cross(client: Client, way: Way) -> None:
    if way.transport == "http":
        await interleave(client, sessions=8, calls=25)
    else:
        await interleave(client, sessions=4, calls=10)


async def interleave(client: Client, *, sessions: int, calls: int) -> None:
    """Interleave the calls of several sessions, and check that each has its own process and count."""
    pids: dict[str, set[int]] = {}
    limit = anyio.CapacityLimiter(16)

    async def one(session: str) -> None:
        for expected in range(1, calls + 1):
            async with limit:
                result = structured(await client.call_tool("inc", {"session_id": session}))
            assert result["count"] == expected
            pids.setdefault(session, set()).add(result["pid"])

    opened = [await opened_session(client, services=["quick"]) for _ in range(sessions)]
    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            for session in opened:
                tasks.start_soon(one, session)
    assert sorted(len(processes) for processes in pids.values()) == [1] * sessions
    assert len({pid for processes in pids.values() for pid in processes}) == sessions
    async with anyio.create_task_group() as tasks:
        for session in opened:
            tasks.start_soon(client.call_tool, "session_close", {"session_id": session})


async def test_twenty_first_calls_at_once_start_one_process(client: Client) -> None:
    session = await opened_session(client)
    pids: set[int] = set()

    async def one() -> None:
        pids.add(structured(await client.call_tool("get", {"session_id": session}))["pid"])

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(one)
    assert len(pids) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_internal_error_does_not_contain_its_message(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    errors: list[Exception] = []

    async def fail(*_: object) -> None:
        raise errors[0]

    monkeypatch.setattr(gateway.registry, "create", fail)
    async with Client(StateholdServer(gateway, version="0"), mode=mode, cache=None) as client:
        monkeypatch.setattr(gateway.probes, "catalog", fail)
        errors[:] = [StoreUnavailable("/secret/path cannot be written")]
        result = await client.call_tool("session_create", {})
        assert code_of(result) == "service_unavailable"
        assert "/secret" not in result.model_dump_json()
        errors[:] = [ValueError("a secret")]
        for call in (client.call_tool("session_create", {}), client.list_tools()):
            with pytest.raises(MCPError) as error_info:
                await call
            assert error_info.value.error.code == types.INTERNAL_ERROR
            assert "secret" not in str(error_info.value.error)
