"""A closed session allows only a few operations, and no other call changes it."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from support.gateway_process import (
    ASKS_SERVICE,
    JSON,
    code_of,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
)

WAYS = [("memory", "modern"), ("memory", "legacy")]

MORE: dict[str, list[JSON]] = {
    "session_bind": [{"service": "quick"}],
    "session_unbind": [{"service": "quick"}],
    "session_rename": [{}, {"name": "other"}, {"metadata": {"a": 2}}],
    "session_close": [{}, {"force": True}],
    "session_restart": [{}, {"services": ["quick"]}],
    "session_extend": [{}, {"seconds": 1}, {"seconds": -1}],
    "session_request_human": [{"reason": "look", "wait_seconds": 0}],
    "session_fork": [{}, {"count": 2, "names": ["x", "y"]}],
    "session_note": [{"role": "user", "content": "x"}],
    "session_run": [{"run_id": "r1", "status": s} for s in ("running", "completed")],
    "session_summary": [{"text": "mine"}],
    "state_update": [{"values": {"n": 2}}, {"values": {}, "mode": "replace"}],
}
"""Arguments of the tools that need some, or have several ways to change something."""
ENDS = {"session_close", "session_delete"}
"""The tools that may be repeated on a closed session, or that are meant for it."""


@pytest.fixture(scope="module")
def settings() -> JSON:
    toolsets = ["core", "lifecycle", "state", "history", "branch", "admin", "view", "calls"]
    return {"toolsets": toolsets, "services": {"quick": service("quick")}}


async def kept(client: Client, session: str) -> Any:
    """Return all that is kept of a session, but for when it was looked at."""
    arguments: JSON = {"session_id": session, "secrets": True}
    document = structured(await client.call_tool("session_export", arguments))["document"]
    document.pop("exported_at", None)
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    return document, info


async def listed(client: Client) -> list[JSON]:
    everything: JSON = {"statuses": ["idle", "active", "paused", "error", "closed"], "limit": 100}
    return structured(await client.call_tool("session_list", everything))["sessions"]


async def test_no_tool_changes_a_closed_session(client: Client) -> None:
    session = await opened_session(client, state={"n": 1}, metadata={"a": 1}, user_id="ann")
    one: JSON = {"session_id": session}
    await client.call_tool("inc", one)
    forked = structured(await client.call_tool("session_fork", one))["children"]
    child = forked[0]["session_id"]
    await client.call_tool("state_update", {"session_id": child, "values": {"n": 3}})
    await client.call_tool("session_close", one)
    before = await kept(client, session), await listed(client)
    more = {**MORE, "session_merge": [{"sources": [child]}]}
    tried: list[str] = []
    for tool in (await client.list_tools(meta=ASKS_SERVICE)).tools:
        reads = tool.annotations is not None and tool.annotations.read_only_hint
        own = "statehold/service" not in (tool.meta or {})
        if "session_id" not in tool.input_schema["properties"] or (own and reads):
            continue
        if tool.name in ENDS:
            continue
        for arguments in more.get(tool.name, [{}]):
            refused = await client.call_tool(tool.name, {**one, **arguments})
            assert refused.is_error, (tool.name, arguments)
            assert code_of(refused) == "session_closed", (tool.name, arguments)
            tried.append(tool.name)
    assert {*more, "session_pause", "session_resume", "inc"} - ENDS <= set(tried)
    assert (await kept(client, session), await listed(client)) == before


async def test_closing_again_changes_nothing(client: Client) -> None:
    session = await opened_session(client, state={"n": 1})
    await client.call_tool("session_close", {"session_id": session})
    before = await kept(client, session)
    for arguments in MORE["session_close"]:
        await client.call_tool("session_close", {"session_id": session, **arguments})
    assert await kept(client, session) == before


async def test_a_closed_session_is_no_source_of_a_merge(client: Client) -> None:
    session = await opened_session(client, state={"n": 1})
    forked = structured(await client.call_tool("session_fork", {"session_id": session}))
    child = forked["children"][0]["session_id"]
    await client.call_tool("state_update", {"session_id": child, "values": {"n": 3}})
    await client.call_tool("session_close", {"session_id": child})
    before = await kept(client, child)
    arguments: JSON = {"session_id": session, "sources": [child]}
    assert code_of(await client.call_tool("session_merge", arguments)) == "session_closed"
    assert await kept(client, child) == before
    content = structured(await client.call_tool("state_get", {"session_id": session}))
    assert (content["value"], content["version"]) == ({"n": 1}, 0)


async def test_a_closed_session_answers_by_name_as_by_id(client: Client) -> None:
    session = await opened_session(client, name="gone", state={"n": 1})
    await client.call_tool("session_close", {"session_id": "gone"})
    refused: dict[str, JSON] = {"inc": {}, "state_update": {"values": {}}, "session_restart": {}}
    for tool, more in refused.items():
        by_name = await client.call_tool(tool, {"session_id": "gone", **more})
        by_id = await client.call_tool(tool, {"session_id": session, **more})
        assert code_of(by_name) == "session_closed", tool
        assert text_of(by_name) == text_of(by_id)
        assert meta_of(by_name)["statehold/error"] == meta_of(by_id)["statehold/error"]
    for tool in ("state_get", "session_info", "session_history", "session_summary"):
        by_name = structured(await client.call_tool(tool, {"session_id": "gone"}))
        assert by_name == structured(await client.call_tool(tool, {"session_id": session})), tool
    read = structured(await client.call_tool("state_get", {"session_id": "gone"}))
    assert read["value"] == {"n": 1}
    again = structured(await client.call_tool("session_close", {"session_id": "gone"}))
    assert again["session_id"] == session
    newer = await opened_session(client, name="gone")
    assert structured(await client.call_tool("state_get", {"session_id": "gone"}))["value"] == {}
    assert newer != session
    await client.call_tool("session_close", {"session_id": newer})
    unknown = await client.call_tool("inc", {"session_id": "never there"})
    assert code_of(unknown) == "session_not_found"
