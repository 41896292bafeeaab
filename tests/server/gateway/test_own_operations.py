"""At most once, of Statehold's own tools, and through a kill."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    ASKS_SESSION,
    IN_PROCESS,
    JSON,
    Era,
    Running,
    Way,
    code_of,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.selection import matrix, matrix_of
from support.waiting import until

from statehold.client.protocol.calls import IDEMPOTENT
from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.repeats import may_repeat

WAYS = matrix_of(IN_PROCESS)
ALL = ["core", "lifecycle", "state", "history", "branch", "admin", "view"]

CHANGING: dict[str, JSON] = {
    "state_update": {"values": "e", "path": "/log/-"},
    "session_note": {"role": "user", "content": "hello"},
    "session_run": {"run_id": "r1", "status": "running"},
    "session_summary": {"text": "so far"},
    "session_fork": {},
    "session_merge": {"sources": []},
    "session_extend": {"seconds": -60},
    "session_rename": {"metadata": {"n": 1}},
    "session_pause": {},
    "session_resume": {},
    "session_restart": {},
    "session_bind": {"service": "quick"},
    "session_unbind": {"service": "quick"},
    "session_request_human": {"reason": "look", "wait_seconds": 0},
    "session_close": {},
}
"""The tools that change a session, each with arguments."""
MAKING = {"session_create", "session_import"}
ENDING = {"session_close", "session_delete", "session_rename"}


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"toolsets": ALL, "services": {"quick": service("quick")}}


def once(operation: object) -> Any:
    return {"statehold/operation_id": operation}


async def given_to(client: Client, tool: str) -> JSON:
    """Return arguments for a tool that changes a new session."""
    session = await opened_session(client, state={"log": []})
    arguments = {"session_id": session, **CHANGING.get(tool, {})}
    if tool == "session_merge":
        forked = structured(await client.call_tool("session_fork", {"session_id": session}))
        arguments["sources"] = [child["session_id"] for child in forked["children"]]
    return arguments


async def test_every_tool_that_changes_sessions_is_tested_here(mcp_server: StateholdServer) -> None:
    tools = {tool["name"]: tool for tool in mcp_server.catalog.own_definitions.values()}
    own = {name for name, tool in tools.items() if not tool["annotations"]["readOnlyHint"]}
    assert own == {*CHANGING, *MAKING, "session_delete"}


@pytest.mark.parametrize("tool", CHANGING)
async def test_a_repeat_gets_the_recorded_result(client: Client, tool: str) -> None:
    arguments = await given_to(client, tool)
    session = arguments["session_id"]
    first = structured(await client.call_tool(tool, arguments, meta=once("a")))
    if tool not in ENDING:
        # The state differs by now from the one that the first call returned.
        await client.call_tool("state_update", {"session_id": session, "values": {"x": 1}})
    again = await client.call_tool(tool, arguments, meta=once("a") | ASKS_SESSION)
    assert structured(again) == first
    assert again.meta is not None
    assert again.meta["statehold/session"]["id"] == session


@pytest.mark.parametrize(
    ("tool", "kept"),
    [
        ("state_update", {"values": {"log": ["e"]}}),
        ("session_note", {"kinds": ["hello"]}),
        ("session_fork", {"children": 1}),
    ],
)
async def test_a_repeated_call_changes_the_session_once(
    client: Client, tool: str, kept: JSON
) -> None:
    arguments = await given_to(client, tool)
    this = {"session_id": arguments["session_id"]}
    for _ in range(3):
        await client.call_tool(tool, arguments, meta=once("a"))
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(lambda: client.call_tool(tool, arguments, meta=once("a")))
    state = structured(await client.call_tool("state_get", this))["value"]
    history = {**this, "kind": "message"}
    notes = structured(await client.call_tool("session_history", history))["entries"]
    listed = structured(await client.call_tool("session_list", {"limit": 1000}))["sessions"]
    infos = [
        structured(await client.call_tool("session_info", {"session_id": each["session_id"]}))
        for each in listed
    ]
    effects: JSON = {
        "values": state,
        "kinds": [note["content"] for note in notes],
        "children": sum(info["parent"] == this["session_id"] for info in infos),
    }
    assert {key: effects[key] for key in kept} == kept


async def test_an_error_is_repeated_and_an_invalid_argument_is_tried_again(client: Client) -> None:
    arguments = await given_to(client, "state_update")
    early = {**arguments, "if_version": 1}
    for _ in range(2):
        assert code_of(await client.call_tool("state_update", early, meta=once("a"))) == (
            "state_conflict"
        )
    await client.call_tool("state_update", arguments)
    # It would not be one any more.
    refused = await client.call_tool("state_update", early, meta=once("a"))
    assert code_of(refused) == "state_conflict"
    wrong = {**arguments, "mode": "add"}
    refused = await client.call_tool("state_update", wrong, meta=once("b"))
    assert code_of(refused) == "invalid_argument"
    structured(await client.call_tool("state_update", arguments, meta=once("b")))


async def test_a_name_that_was_taken_is_so_for_the_repeat(client: Client) -> None:
    session, other = [(await given_to(client, "session_rename"))["session_id"] for _ in range(2)]
    name = {"name": f"n-{session}"}
    await client.call_tool("session_rename", {"session_id": other, **name})
    arguments = {"session_id": session, **name}
    assert (
        code_of(await client.call_tool("session_rename", arguments, meta=once("a"))) == "name_taken"
    )
    await client.call_tool("session_close", {"session_id": other})
    assert (
        code_of(await client.call_tool("session_rename", arguments, meta=once("a"))) == "name_taken"
    )


async def test_an_id_of_another_call_is_refused(client: Client) -> None:
    arguments = await given_to(client, "state_update")
    await client.call_tool("state_update", arguments, meta=once("a"))
    this = {"session_id": arguments["session_id"]}
    for tool, more in (
        ("state_update", {**arguments, "values": "f"}),
        ("session_note", {**this, "role": "user", "content": "x"}),
        ("session_fork", this),
        ("inc", this),
    ):
        refused = await client.call_tool(tool, more, meta=once("a"))
        assert code_of(refused) == "invalid_argument"
    await client.call_tool("inc", this, meta=once("b"))
    refused = await client.call_tool("state_update", arguments, meta=once("b"))
    assert code_of(refused) == "invalid_argument"
    value = structured(await client.call_tool("state_get", this))["value"]
    assert value == {"log": ["e"]}


async def test_the_same_call_may_name_the_session_otherwise(client: Client) -> None:
    arguments = await given_to(client, "state_update")
    name = f"n-{arguments['session_id']}"
    await client.call_tool("session_rename", {"session_id": arguments["session_id"], "name": name})
    for ref in (arguments["session_id"], name):
        result = await client.call_tool(
            "state_update", {**arguments, "session_id": ref}, meta=once("a")
        )
        assert structured(result) == {"version": 1}


@pytest.mark.parametrize("tool", sorted(ENDING))
async def test_a_name_that_may_be_anothers_for_the_repeat_is_refused(
    client: Client, tool: str
) -> None:
    arguments = await given_to(client, tool)
    name = f"n-{arguments['session_id']}"
    await client.call_tool("session_rename", {"session_id": arguments["session_id"], "name": name})
    refused = await client.call_tool(tool, {**arguments, "session_id": name}, meta=once("a"))
    assert code_of(refused) == "invalid_argument"
    structured(await client.call_tool("session_info", {"session_id": arguments["session_id"]}))


async def test_a_deleted_session_keeps_no_receipt_and_is_unknown_to_the_repeat(
    client: Client,
) -> None:
    arguments = await given_to(client, "session_delete")
    structured(await client.call_tool("session_delete", arguments, meta=once("a")))
    refused = await client.call_tool("session_delete", arguments, meta=once("a"))
    assert code_of(refused) == "session_not_found"


@pytest.mark.parametrize("tool", sorted(MAKING))
async def test_a_session_is_made_once(client: Client, tool: str) -> None:
    arguments: JSON = {"state": {"log": [tool]}}
    other: JSON = {"state": {"log": ["other"]}}
    if tool == "session_import":
        for each in (arguments, other):
            session = await opened_session(client, **each)
            result = await client.call_tool("session_export", {"session_id": session})
            each.clear()
            each["document"] = structured(result)["document"]
    operation = once(f"make-{tool}-{id(client)}")
    first = structured(await client.call_tool(tool, arguments, meta=operation))
    ids: list[str] = []

    async def again() -> None:
        created = structured(await client.call_tool(tool, arguments, meta=operation))
        ids.append(created["session_id"])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(again)
    assert ids == [first["session_id"]] * 3
    refused = await client.call_tool(tool, other, meta=operation)
    assert code_of(refused) == "invalid_argument"
    # It is an id of the caller's, not of the session's.
    this: JSON = {"session_id": first["session_id"], "values": {}}
    structured(await client.call_tool("state_update", this, meta=operation))
    # A repeat returns the same session while that is closed, and makes a new one after it is deleted.
    await client.call_tool("session_close", {"session_id": first["session_id"]})
    await again()
    await client.call_tool("session_delete", {"session_id": first["session_id"]})
    await again()
    assert ids[3] == first["session_id"] != ids[4]


async def test_a_refused_creation_leaves_no_receipt(client: Client) -> None:
    operation, name = once(f"unmade-{id(client)}"), f"n-{id(client)}"
    session = await opened_session(client, name=name)
    refused = await client.call_tool("session_create", {"name": name}, meta=operation)
    assert code_of(refused) == "name_taken"
    await client.call_tool("session_close", {"session_id": session})
    content = structured(await client.call_tool("session_create", {"name": name}, meta=operation))
    assert content["session_id"] != session


@pytest.mark.parametrize("operation", ["", "x" * 129, 5, ["a"]])
async def test_a_malformed_id_is_refused_by_every_tool(
    client: Client, mcp_server: StateholdServer, operation: object
) -> None:
    given = await given_to(client, "state_update")
    for tool in mcp_server.catalog.own_definitions:
        some = {"session_id": given["session_id"], **CHANGING.get(tool, {})}
        arguments = {} if tool in MAKING else some
        refused = await client.call_tool(tool, arguments, meta=once(operation))
        assert code_of(refused) == "invalid_argument", tool
    this = {"session_id": given["session_id"]}
    assert structured(await client.call_tool("state_get", this))["version"] == 0


async def test_a_tool_that_only_reads_ignores_an_operation_id(client: Client) -> None:
    arguments = await given_to(client, "state_update")
    this = {"session_id": arguments["session_id"]}
    await client.call_tool("state_update", arguments, meta=once("a"))
    for tool in ("state_get", "session_info", "session_history", "session_export"):
        structured(await client.call_tool(tool, this, meta=once("a")))
    structured(await client.call_tool("session_list", {}, meta=once("a")))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_pinned_session_has_operations_too(gateway: Gateway, mode: str) -> None:
    mcp_server = StateholdServer(gateway, version="0", pinned_name=f"own {mode}")
    async with Client(mcp_server, mode=mode, cache=None) as client:
        arguments = CHANGING["state_update"]
        await client.call_tool("state_update", {"values": {"log": []}})
        for _ in range(2):
            structured(await client.call_tool("state_update", arguments, meta=once("a")))
        assert structured(await client.call_tool("state_get", {}))["value"] == {"log": ["e"]}
        # The next call would make another one of that name.
        refused = await client.call_tool("session_close", {}, meta=once("b"))
        assert code_of(refused) == "invalid_argument"


# Through a kill.


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """While this file is there, the service does not start."""
    return tmp_path / "stuck"


@pytest.fixture
def config(tmp_path: Path, stuck: Path) -> Path:
    path = tmp_path / "statehold.toml"
    quick = service("quick")
    start = 'test -e "$0" && exec sleep 600; exec "$@"'
    command = {"command": "sh", "args": ["-c", start, str(stuck), quick["command"], *quick["args"]]}
    services = {"quick": {**command, "connect": "eager"}}
    path.write_text(toml({"toolsets": ALL, "services": services}))
    return path


async def begun(data: Path) -> None:
    """Wait until the store has a receipt."""

    def has_receipt() -> bool:
        with closing(sqlite3.connect(f"file:{data / 'statehold.db'}?mode=ro", uri=True)) as db:
            return bool(db.execute("SELECT count(*) FROM receipt").fetchone()[0])

    await until(has_receipt)


async def killed(running: Running) -> None:
    running.process.kill()
    with anyio.fail_after(20):
        assert await anyio.to_thread.run_sync(running.process.wait) == -signal.SIGKILL


def way_to(running: Running, era: Era, config: Path, data: Path) -> Way:
    return Way("http", era, config, data, url=running.url)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("era", "tool"), matrix(("modern", "session_create"), ("legacy", "session_restart"))
)
async def test_a_call_that_a_kill_cut_short_is_unknown(
    config: Path, stuck: Path, tmp_path: Path, era: Era, tool: str
) -> None:
    data, meta, arguments = tmp_path / "data", once("a"), dict[str, Any]()
    with serving(config, data) as running, suppress(Exception, BaseExceptionGroup):
        async with way_to(running, era, config, data).connect() as client:
            await client.list_tools()
            if tool == "session_restart":
                arguments = {"session_id": await opened_session(client)}
            await anyio.Path(stuck).touch()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call_tool(tool, arguments, meta=meta))
                await begun(data)
                await killed(running)
                tasks.cancel_scope.cancel()
    assert running.process.poll() == -signal.SIGKILL
    await anyio.Path(stuck).unlink()
    with serving(config, data) as running:
        async with way_to(running, era, config, data).connect() as client:
            before = structured(await client.call_tool("session_list", {}))["sessions"]
            for _ in range(2):
                assert (
                    code_of(await client.call_tool(tool, arguments, meta=meta)) == "outcome_unknown"
                )
            refused = await client.call_tool(tool, {**arguments, "services": []}, meta=meta)
            assert code_of(refused) == "invalid_argument"
            after = structured(await client.call_tool("session_list", {}))["sessions"]
            assert len(before) == len(after) == (tool == "session_restart")


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["modern"])
async def test_a_change_survives_a_kill_with_its_result_or_is_unknown(
    config: Path, tmp_path: Path, era: Era
) -> None:
    data, meta = tmp_path / "data", once("a")
    arguments: JSON = CHANGING["state_update"]
    create: JSON = {"services": [], "state": {"log": []}}
    this, first, cut = dict[str, Any](), dict[str, Any](), ""
    with serving(config, data) as running, suppress(Exception, BaseExceptionGroup):
        async with way_to(running, era, config, data).connect() as client:
            done, cut = [await opened_session(client, **create) for _ in range(2)]
            this = {**arguments, "session_id": done}
            first = structured(await client.call_tool("state_update", this, meta=meta))
            arguments = {**arguments, "session_id": cut}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call_tool("state_update", arguments, meta=meta))
                await anyio.sleep(0.002)
                await killed(running)
                tasks.cancel_scope.cancel()
    assert running.process.poll() == -signal.SIGKILL
    with serving(config, data) as running:
        async with way_to(running, era, config, data).connect() as client:
            assert structured(await client.call_tool("state_update", this, meta=meta)) == first
            result = await client.call_tool("state_update", arguments, meta=meta)
            log = (await client.call_tool("state_get", {"session_id": cut})).structured_content
            assert log is not None
            if result.is_error:
                assert code_of(result) == "outcome_unknown"
                assert len(log["value"]["log"]) <= 1
            else:
                assert (structured(result), log["value"]) == ({"version": 1}, {"log": ["e"]})
            await client.call_tool("state_update", arguments, meta=meta)
            again = await client.call_tool("state_get", {"session_id": cut})
            assert again.structured_content == log


async def test_the_client_repeats_the_own_tools_that_declare_it(
    mcp_server: StateholdServer,
) -> None:
    definitions = mcp_server.catalog.own_definitions.values()
    repeatable = {tool["name"] for tool in definitions if may_repeat(tool)}
    assert repeatable == IDEMPOTENT & {tool["name"] for tool in definitions}
