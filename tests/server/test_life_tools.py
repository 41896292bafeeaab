"""Finding, naming, deleting and moving sessions, over every transport."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from front import FEW_WAYS, JSON, code_of, opened_session, service, structured
from jsonschema import Draft202012Validator
from mcp import Client

WAYS = FEW_WAYS


@pytest.fixture(scope="module")
def settings() -> JSON:
    toolsets = ["core", "lifecycle", "state", "history", "branch", "admin"]
    return {"toolsets": toolsets, "services": {"quick": service("quick")}}


async def listed(client: Client, **wanted: Any) -> list[JSON]:
    found = structured(await client.call_tool("session_list", wanted))
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    schema = tools["session_list"].output_schema
    assert schema is not None
    assert list(Draft202012Validator(schema).iter_errors(found)) == []  # pyright: ignore
    return found["sessions"]


async def test_sessions_are_found_by_what_was_said_of_them(client: Client) -> None:
    """AS-02, AS-04, AS-07, AS-60, AS-62, AS-75."""
    user = f"ann {secrets.token_hex(4)}"
    metadata = {"order": {"id": 17, "paid": False}}
    one = await opened_session(client, user_id=user, agent_id="buyer", metadata=metadata)
    two = await opened_session(client, user_id=user, team_id="blue", workflow_id="w/1", name=user)
    info = structured(await client.call_tool("session_info", {"session_id": two}))
    labels = {"user_id": user, "agent_id": None, "team_id": "blue", "workflow_id": "w/1"}
    assert {key: info[key] for key in labels} == labels

    async def ids(**wanted: Any) -> list[str]:
        return [found["session_id"] for found in await listed(client, user_id=user, **wanted)]

    assert await ids() == [two, one]
    arguments: JSON = {"session_id": one, "values": {"n": 1}}
    updated = structured(await client.call_tool("state_update", arguments))
    assert updated["version"] == 1
    assert await ids() == [one, two]
    [first, second] = await listed(client, user_id=user)
    assert (first["metadata"], second["metadata"]) == (metadata, {})
    assert first["used_at"] > second["used_at"]
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
    """AS-07, AS-26, AS-72."""
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
    [made] = child["children"]
    info = structured(await client.call_tool("session_info", {"session_id": made["session_id"]}))
    assert (info["user_id"], info["parent"]) == ("ann", session)
