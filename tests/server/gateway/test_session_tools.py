"""Finding, naming, deleting and moving sessions, in both eras."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from mcp import Client
from support.gateway_process import (
    IN_PROCESS,
    JSON,
    code_of,
    opened_session,
    service,
    structured,
    text_of,
)
from support.own_results import check_own_result
from support.selection import matrix_of

WAYS = matrix_of(IN_PROCESS)


@pytest.fixture(scope="module")
def settings() -> JSON:
    toolsets = ["core", "lifecycle", "state", "history", "branch", "admin"]
    return {"toolsets": toolsets, "services": {"quick": service("quick")}}


async def listed(client: Client, **wanted: Any) -> list[JSON]:
    content = structured(await client.call_tool("session_list", wanted))
    check_own_result("session_list", content)
    return content["sessions"]


async def test_sessions_are_found_by_their_labels(client: Client) -> None:
    user = f"ann {secrets.token_hex(4)}"
    metadata = {"order": {"id": 17, "paid": False}}
    one = await opened_session(client, user_id=user, agent_id="buyer", metadata=metadata)
    two = await opened_session(client, user_id=user, team_id="blue", workflow_id="w/1", name=user)
    info = structured(await client.call_tool("session_info", {"session_id": two}))
    labels = {"user_id": user, "agent_id": None, "team_id": "blue", "workflow_id": "w/1"}
    assert {key: info[key] for key in labels} == labels

    async def ids(**wanted: Any) -> list[str]:
        return [session["session_id"] for session in await listed(client, user_id=user, **wanted)]

    assert await ids() == [two, one]
    arguments: JSON = {"session_id": one, "values": {"n": 1}}
    updated = structured(await client.call_tool("state_update", arguments))
    assert updated["version"] == 1
    assert await ids() == [one, two]
    [first, second] = await listed(client, user_id=user)
    assert (first["metadata"], second["metadata"]) == (metadata, {})
    assert first["used_at"] > second["used_at"]
    times = [first["created_at"], first["used_at"]]
    for n in (2, 3):
        await client.call_tool("state_update", {"session_id": one, "values": {"n": n}})
        [session] = await listed(client, user_id=user, agent_id="buyer")
        assert (session["session_id"], session["created_at"]) == (one, times[0])
        times.append(session["used_at"])
    assert times == sorted(set(times))
    first = session
    assert await ids(updated_since=first["used_at"]) == [one]
    assert await ids(metadata={"order": {"id": 17, "paid": False}}) == [one]
    assert await ids(metadata={"order": {"id": 17}}) == []
    assert await ids(query="BLUE") == [two]
    assert await ids(name=user[:5], statuses=["idle"]) == [two]
    for wrong in ({"updated_since": "yesterday"}, {"user_id": ""}, {"cursor": "x"}):
        assert code_of(await client.call_tool("session_list", wrong)) == "invalid_argument"
    odd = await client.call_tool("session_create", {"user_id": "a\nb"})
    assert code_of(odd) == "invalid_argument"


async def test_metadata_is_merged_and_the_ids_stay(client: Client) -> None:
    name = f"name {secrets.token_hex(4)}"
    session = await opened_session(client, name=name, user_id="ann", metadata={"a": {"x": 1}})

    async def rename(**arguments: Any) -> JSON:
        arguments["session_id"] = session
        return structured(await client.call_tool("session_rename", arguments))

    merged = await rename(metadata={"a": {"y": 2}, "b": [1.0]})
    assert (merged["name"], merged["metadata"]) == (name, {"a": {"x": 1, "y": 2}, "b": [1.0]})
    other = await rename(name=f"{name}!", metadata={"a": None})
    assert (other["name"], other["metadata"]) == (f"{name}!", {"b": [1.0]})
    none = await rename()
    assert (none["name"], none["metadata"]) == (None, {"b": [1.0]})
    assert (none["session_id"], none["user_id"]) == (session, "ann")
    large = {"session_id": session, "name": "lost", "metadata": {"x": "x" * 17_000}}
    assert code_of(await client.call_tool("session_rename", large)) == "invalid_argument"
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    assert (info["name"], info["metadata"]) == (None, {"b": [1.0]})
    child = structured(await client.call_tool("session_fork", {"session_id": session}))
    [child_entry] = child["children"]
    info = structured(
        await client.call_tool("session_info", {"session_id": child_entry["session_id"]})
    )
    assert (info["user_id"], info["parent"]) == ("ann", session)


async def test_a_session_is_moved_and_deleted(client: Client) -> None:
    """Export a session as a document, import it under another id, and delete it."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    async def call(tool: str, **arguments: Any) -> JSON:
        content = structured(await client.call_tool(tool, arguments))
        check_own_result(tool, content)
        return content

    name = f"moved {secrets.token_hex(4)}"
    state = {"n": 2**70, "x": 1.0, "token": "hush"}
    one = await opened_session(client, name=name, state=state)
    await client.call_tool("session_note", {"session_id": one, "role": "user", "content": "tea?"})
    document = (await call("session_export", session_id=one, secrets=True))["document"]
    assert document["state"]["value"] == state
    bare = (await call("session_export", session_id=one))["document"]
    assert bare["state"]["value"] == {**state, "token": "[redacted]"}
    refused = await client.call_tool("session_import", {"document": document})
    assert code_of(refused) == "name_taken"
    imported = await call("session_import", document=document, name=f"{name} 2")
    assert (imported["status"], imported["imported_from"], imported["left_out"]) == (
        "paused",
        one,
        [],
    )
    content = structured(
        await client.call_tool("state_get", {"session_id": imported["session_id"]})
    )
    assert (content["value"], type(content["value"]["x"])) == (state, float)
    past = {"session_id": imported["session_id"], "kind": "message"}
    history = structured(await client.call_tool("session_history", past))
    assert [entry["content"] for entry in history["entries"]] == ["tea?"]
    wrong = await client.call_tool("session_import", {"document": {**document, "version": 7}})
    assert code_of(wrong) == "invalid_argument"
    assert "version" in text_of(wrong)
    for session in (one, f"{name} 2"):
        gone = await call("session_delete", session_id=session, force=True)
        assert gone["deleted"] is True
        again = await client.call_tool("session_delete", {"session_id": session})
        assert code_of(again) == "session_not_found"
    assert await listed(client, name=name, statuses=["closed", "paused", "idle"]) == []
    hints = {tool: tools[tool].annotations for tool in ("session_delete", "session_export")}
    assert [hint and hint.destructive_hint for hint in hints.values()] == [True, None]


async def test_an_unknown_session_is_answered_with_those_of_its_caller_that_are_near(
    client: Client,
) -> None:
    name = f"checkout-{secrets.token_hex(4)}"
    session = await opened_session(client, name=name)
    unnamed = await opened_session(client)
    for tool in ("session_info", "state_get", "echo"):
        for wrong, near in (
            (name.upper(), name),
            (name.replace("check", "chek"), name),
            (f"{session[:-2]}xx", session),
            (f"{unnamed[:-1]}", unnamed),
        ):
            refused = await client.call_tool(tool, {"session_id": wrong})
            assert code_of(refused) == "session_not_found"
            assert f"Did you mean {near}?" in text_of(refused), (tool, wrong)
    far = await client.call_tool("session_info", {"session_id": "zzzz"})
    assert "Did you mean" not in text_of(far)
    for gone in (session, unnamed):
        await client.call_tool("session_close", {"session_id": gone})
    refused = await client.call_tool("session_info", {"session_id": name.upper()})
    assert "Did you mean" not in text_of(refused)


async def test_the_server_is_looked_at_without_ids(client: Client) -> None:
    await opened_session(client)
    services = structured(await client.call_tool("service_list", {}))
    [quick] = services["services"]
    assert (quick["service"], quick["status"], quick["problem"]) == ("quick", "available", None)
    assert quick["tools"] > 0
    stats = structured(await client.call_tool("server_stats", {}))
    assert stats["sessions"]["idle"] >= 1
    assert set(stats["sessions"]) == {
        *("creating", "idle", "active", "paused", "error", "closing", "closed")
    }
    assert stats["here"]["owned"] >= 1
    assert stats["journal_dropped"] == 0
    assert stats["stored"]["bytes"] > 0
    assert stats["stored"]["limit"] == 4 << 30


async def test_a_list_says_when_a_session_was_closed_and_none_shows_an_end_without_one(
    client: Client,
) -> None:
    user = f"ann {secrets.token_hex(4)}"
    named = await opened_session(client, user_id=user, name=user)
    brief = await opened_session(client, user_id=user, idle_seconds=0, lifetime_seconds=0)
    ends = {each["session_id"]: each["expires_at"] for each in await listed(client, user_id=user)}
    assert ends == {named: None, brief: None}
    await client.call_tool("session_close", {"session_id": named})
    [closed] = await listed(client, user_id=user, statuses=["closed"])
    info = structured(await client.call_tool("session_info", {"session_id": named}))
    assert closed["closed_at"] == info["closed_at"] is not None
    [still_open] = await listed(client, user_id=user)
    assert (still_open["session_id"], still_open["closed_at"]) == (brief, None)
