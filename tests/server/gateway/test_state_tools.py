"""The state of a session in both eras: its tools, its resource, and the notifications of changes."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    ASKS_SESSION,
    IN_PROCESS,
    JSON,
    Way,
    code_of,
    meta_of,
    opened_session,
    service,
    structured,
    text_of,
)
from support.own_results import check_own_result
from support.selection import matrix_of

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

LIMIT = 1 << 20

WAYS = matrix_of(IN_PROCESS)


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"quick": service("quick")}}


async def get(client: Client, session: str, path: str = "", **more: Any) -> JSON:
    arguments = {"session_id": session, "path": path, **more}
    return structured(await client.call_tool("state_get", arguments))


async def update(client: Client, session: str, values: Any, **more: Any) -> int:
    arguments = {"session_id": session, "values": values, **more}
    return structured(await client.call_tool("state_update", arguments))["version"]


async def refused(client: Client, tool: str, **arguments: Any) -> tuple[str, str]:
    result = await client.call_tool(tool, arguments)
    return code_of(result), text_of(result)


# Tools.


async def test_a_state_is_read_and_changed(client: Client) -> None:
    session = await opened_session(client)
    assert await get(client, session) == {"found": True, "value": {}, "version": 0}
    assert await update(client, session, {"cart": {"items": ["tea"], "total": 3}}) == 1
    assert await update(client, session, {"cart": {"total": None, "paid": True}}) == 2
    cart = {"items": ["tea"], "paid": True}
    assert await get(client, session, "/cart") == {"found": True, "value": cart, "version": 2}
    assert await update(client, session, "milk", path="/cart/items/-") == 3
    assert (await get(client, session, "/cart/items/1"))["value"] == "milk"
    assert await get(client, session, "/n") == {"found": False, "value": None, "version": 3}
    assert await update(client, session, {"left": 1}, mode="replace") == 4
    assert (await get(client, session))["value"] == {"left": 1}
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    assert info["state_version"] == 4


async def test_results_have_the_declared_form_and_say_which_session(client: Client) -> None:
    session = await opened_session(client, state={"n": 1})
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    calls: list[tuple[str, JSON]] = [
        ("state_get", {}),
        ("state_get", {"path": "/none"}),
        ("state_update", {"values": {"n": 2}}),
    ]
    for name, arguments in calls:
        result = await client.call_tool(
            name, {"session_id": session, **arguments}, meta=ASKS_SESSION
        )
        content = structured(result)
        assert tools[name].output_schema is not None
        check_own_result(name, content)
        assert json.loads(text_of(result)) == content
        assert meta_of(result)["statehold/session"]["id"] == session
    hints = {name: tools[name].annotations for name in ("state_get", "state_update")}
    reading, changing = hints["state_get"], hints["state_update"]
    assert reading is not None
    assert reading.read_only_hint
    assert changing is not None
    assert (changing.read_only_hint, changing.idempotent_hint) == (False, None)


NUMBERS: JSON = {
    "int64": 2**63 - 1,
    "negative": -(2**63),
    "uint64": 2**64 - 1,
    "large": 2**200 + 1,
    "float": 0.1,
    "whole": 1.0,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "text": "naïve 漢字 \U0001f600 \u2028 \x00",
    "nested": {"list": [None, {"deep": []}, False], "empty": {}},
}


async def test_every_value_comes_back_exact(client: Client) -> None:
    session = await opened_session(client, state=NUMBERS)
    await update(client, session, NUMBERS, path="/again", mode="replace")
    for path in ("", "/again"):
        value = (await get(client, session, path))["value"]
        again = {key: value[key] for key in NUMBERS}
        assert again == NUMBERS
        assert {k: type(v) for k, v in again.items()} == {k: type(v) for k, v in NUMBERS.items()}
    # Also out of the database.
    await client.call_tool("session_pause", {"session_id": session})
    value = (await get(client, session, "/again"))["value"]
    assert value == NUMBERS
    assert isinstance(value["whole"], float)


async def test_an_invalid_update_is_refused_with_its_code_and_changes_nothing(
    client: Client,
) -> None:
    session = await opened_session(client, state={"n": 1})
    one: JSON = {"session_id": session}
    cases: list[tuple[JSON, str, str]] = [
        ({"values": {"n": 2}, "if_version": 7}, "state_conflict", "version 0, not 7"),
        ({"values": 5}, "state_invalid", "object"),
        ({"values": None}, "state_invalid", "object"),
        ({"values": 5, "path": "/n/x"}, "state_invalid", "/n is neither"),
        ({"values": {"text": "x" * LIMIT}}, "state_invalid", str(LIMIT)),
        ({"values": {}, "path": "n"}, "invalid_argument", "path"),
        ({"values": {}, "mode": "patch"}, "invalid_argument", "mode"),
        ({"values": {}, "if_version": -1}, "invalid_argument", "if_version"),
        ({"values": {}, "if_version": False}, "invalid_argument", "if_version: input should be"),
        ({}, "invalid_argument", "values"),
    ]
    for arguments, code, words in cases:
        error = await refused(client, "state_update", **one, **arguments)
        assert error[0] == code, arguments
        assert words in error[1]
    error = await refused(client, "state_get", **one, path="/config/key", required=True)
    assert error[0] == "state_invalid"
    assert "/config/key" in error[1]
    assert await get(client, session) == {"found": True, "value": {"n": 1}, "version": 0}
    missing = {"session_id": "sh_" + "a" * 26}
    assert (await refused(client, "state_get", **missing))[0] == "session_not_found"
    assert (await refused(client, "state_update", **missing, values={}))[0] == "session_not_found"
    await client.call_tool("session_close", one)
    assert await get(client, session) == {"found": True, "value": {"n": 1}, "version": 0}
    assert (await refused(client, "state_update", **one, values={}))[0] == "session_closed"


async def test_a_schema_is_given_at_create_and_kept(client: Client) -> None:
    schema = {"properties": {"total": {"type": "number"}}, "additionalProperties": False}
    error = await refused(client, "session_create", state={"total": "3"}, state_schema=schema)
    assert error[0] == "state_invalid"
    assert "/total" in error[1]
    error = await refused(client, "session_create", state_schema={"$ref": "http://127.0.0.1:1/"})
    assert error[0] == "invalid_argument"
    session = await opened_session(client, state_schema=schema)
    assert await update(client, session, {"total": 3}) == 1
    one = {"session_id": session}
    error = await refused(client, "state_update", **one, values={"totel": 3})
    assert error[0] == "state_invalid"
    assert "totel" in error[1]
    assert (await get(client, session))["value"] == {"total": 3}


async def test_reading_wakes_nothing_and_changing_opens_no_connection(client: Client) -> None:
    session = await opened_session(client, state={"n": 1})
    await client.call_tool("inc", {"session_id": session})
    await client.call_tool("session_pause", {"session_id": session})
    assert (await get(client, session, "/n"))["value"] == 1
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    assert info["status"] == "paused"
    generation = info["generation"]
    await update(client, session, {"n": 2})
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    assert (info["generation"], info["state_version"]) == (generation, 1)


async def test_a_shopping_list_lives_in_the_state(client: Client) -> None:
    """Several steps share the list: one adds, one lists, one clears."""
    session = await opened_session(client, state={"shopping_list": []})
    for item in ("milk", "bread", "eggs"):
        await update(client, session, item, path="/shopping_list/-")
    assert (await get(client, session, "/shopping_list"))["value"] == ["milk", "bread", "eggs"]
    await update(client, session, [], path="/shopping_list")
    assert (await get(client, session, "/shopping_list"))["value"] == []


async def test_a_state_survives_its_connection(way: Way) -> None:
    """One client reads what another one wrote."""
    async with way.connect() as one:
        session = await opened_session(one, name=f"state {way.transport} {way.era}")
        await update(one, session, {"n": 1})
    async with way.connect() as two:
        assert (await get(two, session, "/n"))["value"] == 1


async def test_many_updates_at_once_are_all_applied(client: Client) -> None:
    session = await opened_session(client)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(update, client, session, {f"key {number}": number})
    response = await get(client, session)
    assert response["version"] == 100
    assert response["value"] == {f"key {number}": number for number in range(100)}
