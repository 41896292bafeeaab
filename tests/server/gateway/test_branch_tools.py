"""Forks and merges of sessions in both protocol eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client
from support.gateway_process import (
    IN_PROCESS,
    JSON,
    code_of,
    count,
    opened_session,
    service,
    structured,
    text_of,
    without_nulls,
)
from support.own_results import check_own_result
from support.selection import matrix_of

WAYS = matrix_of(IN_PROCESS)


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"quick": service("quick")}}


async def fork(client: Client, session: str, **arguments: Any) -> JSON:
    return structured(await client.call_tool("session_fork", {"session_id": session, **arguments}))


async def update(client: Client, session: str, values: JSON) -> None:
    arguments = {"session_id": session, "values": values}
    structured(await client.call_tool("state_update", arguments))


async def test_children_work_by_themselves_and_are_merged(client: Client) -> None:
    state = {"counter": 0, "task": {"title": "prices", "open": True}}
    session = await opened_session(client, state=state)
    assert await count(client, session) == 1
    made = await fork(client, session, count=3)
    children = [child["session_id"] for child in made["children"]]
    (copied,) = made["services"]
    assert (copied["service"], copied["copied"]) == ("quick", False)
    assert "fresh" in copied["note"]
    for number, child in enumerate(children, 1):
        assert await count(client, child) == 1
        await update(client, child, {"counter": number, "results": {f"branch {number}": number}})
    await update(client, children[0], {"task": {"open": None}})
    assert await count(client, session) == 2
    arguments: JSON = {"session_id": session, "sources": children}
    refused = await client.call_tool("session_merge", {**arguments, "policy": "fail"})
    assert code_of(refused) == "state_conflict"
    assert "/counter" in text_of(refused)
    merged = structured(await client.call_tool("session_merge", arguments))
    assert merged == {
        "version": 1,
        "conflicts": [
            {"path": "/counter", "source": child, "taken": True} for child in children[1:]
        ],
        "conflict_count": 2,
    }
    content = structured(await client.call_tool("state_get", {"session_id": session}))
    assert content["value"] == {
        "counter": 3,
        "task": {"title": "prices"},
        "results": {f"branch {number}": number for number in (1, 2, 3)},
    }


async def test_results_have_the_declared_form(client: Client) -> None:
    session = await opened_session(client)
    made = await client.call_tool("session_fork", {"session_id": session})
    child = structured(made)["children"][0]["session_id"]
    one = {"session_id": session, "sources": [child]}
    merged = await client.call_tool("session_merge", one)
    for name, result in (("session_fork", made), ("session_merge", merged)):
        assert json.loads(text_of(result)) == without_nulls(structured(result))
        check_own_result(name, structured(result))
    info = structured(await client.call_tool("session_info", {"session_id": child}))
    assert info["parent"] == session
    for wrong, code in (
        ({"session_id": session, "count": 0}, "invalid_argument"),
        ({"session_id": session, "count": 2, "names": ["one"]}, "invalid_argument"),
        ({"session_id": "sh_" + "a" * 26}, "session_not_found"),
    ):
        assert code_of(await client.call_tool("session_fork", wrong)) == code
    twice = {"session_id": session, "count": 3, "names": ["\u00e9", "z", "e\u0301"]}
    refused = await client.call_tool("session_fork", twice)
    assert code_of(refused) == "invalid_argument"
    assert "'\u00e9'" in text_of(refused)
    for sources in ([], [session], [child, child]):
        result = await client.call_tool("session_merge", {**one, "sources": sources})
        assert code_of(result) == "invalid_argument"
