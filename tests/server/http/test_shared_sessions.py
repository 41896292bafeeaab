"""Sessions that their owner shares with another principal, over HTTP with the tokens of two users and two nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    JSON,
    Running,
    Way,
    code_of,
    count,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.selection import matrix
from support.task_client import Gate, TaskClient, task_client
from support.token_file import write_tokens
from support.waiting import until

from statehold.server.protocol.shared_sessions import TOOL_RIGHTS
from statehold.sessions.records import ShareRights
from statehold.tools.own.toolsets import OWN_NAMES, own_names

ALICE, BEN, EVE = "alice-token-0123456789", "ben-token-0123456789abc", "eve-token-0123456789abc"
DORA = "dora-token-0123456789ab"
RECEIPTS = 12
UNKNOWN = "sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"
ARGUMENTS: dict[str, JSON] = {
    "session_rename": {"name": "mine now"},
    "session_bind": {"service": "asking"},
    "session_unbind": {"service": "asking"},
    "session_close": {"force": True},
    "session_request_human": {"reason": "look", "wait_seconds": 0},
    "session_merge": {"sources": ["sh_" + "b" * 26]},
    "state_update": {"values": {"n": 1}},
    "session_note": {"role": "user", "content": "x"},
    "session_run": {"run_id": "r1", "status": "running"},
    "session_share": {"subject": "eve"},
    "session_unshare": {"subject": "ben", "issuer": "home"},
    "session_summary": {"text": "mine"},
}
OF_NO_SESSION = {
    "session_create",
    "session_list",
    "session_import",
    "service_list",
    "server_stats",
} | {
    "call_result",
    "call_list",
    "call_cancel",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> JSON:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    home = "issuer=home\n"
    write_tokens(path, f"{ALICE} alice\n{BEN} ben {home}{EVE} eve {home}{DORA} dora\n")
    rate = {"calls_per_minute": 0.01, "burst": 6}
    return {
        "server": {"tokens": str(path)},
        "policies": [{"match": {"principal": "dora"}, "rate": rate}],
        "toolsets": list(OWN_NAMES),
        "services": {"asking": service("asking", "--long")},
        "history": {"receipts": RECEIPTS},
    }


async def answer(context: object, params: object) -> Any:
    from mcp_types import ElicitResult

    return ElicitResult(action="accept", content={"answer": "42"})


def options(token: str) -> JSON:
    return {"headers": {"authorization": f"Bearer {token}"}, "elicitation_callback": answer}


@pytest.fixture(scope="module")
async def alice(http: Way) -> AsyncGenerator[Client]:
    async with http.connect(**options(ALICE)) as client:
        yield client


@pytest.fixture(scope="module")
async def ben(http: Way) -> AsyncGenerator[Client]:
    async with http.connect(**options(BEN)) as client:
        yield client


@pytest.fixture(scope="module")
async def eve(http: Way) -> AsyncGenerator[Client]:
    async with http.connect(**options(EVE)) as client:
        yield client


async def share(client: Client, session: str, rights: str, **more: Any) -> JSON:
    arguments: JSON = {"session_id": session, "subject": "ben", "issuer": "home", "rights": rights}
    return structured(await client.call_tool("session_share", {**arguments, **more}))


def test_the_right_that_each_own_tool_needs_is_known() -> None:
    assert TOOL_RIGHTS.keys() == set(own_names(OWN_NAMES, shares=True))


async def test_a_share_allows_the_tools_of_its_rights_and_no_others(
    alice: Client, ben: Client, eve: Client
) -> None:
    for given in (ShareRights.VIEW, ShareRights.USE):
        session = await opened_session(alice)
        assert await count(alice, session) == 1
        await share(alice, session, given.value)
        for tool in TOOL_RIGHTS.keys() - OF_NO_SESSION:
            needed = TOOL_RIGHTS[tool]
            more = ARGUMENTS.get(tool, {})
            result = await ben.call_tool(tool, {"session_id": session, **more})
            unknown = await ben.call_tool(tool, {"session_id": UNKNOWN, **more})
            if needed is not None and (needed is ShareRights.VIEW or given is ShareRights.USE):
                assert not result.is_error, (tool, text_of(result))
            else:
                assert result.model_dump() == unknown.model_dump(), tool
            foreign = await eve.call_tool(tool, {"session_id": session, **more})
            assert foreign.model_dump() == unknown.model_dump(), tool
        called = await ben.call_tool("inc", {"session_id": session})
        assert bool(called.is_error) == (given is ShareRights.VIEW)
        assert not (await ben.call_tool("session_summary", {"session_id": session})).is_error
        assert code_of(await eve.call_tool("inc", {"session_id": session})) == "session_not_found"
        info = structured(await alice.call_tool("session_info", {"session_id": session}))
        assert (info["status"] == "closed", info.get("name")) == (False, None)


async def test_a_share_shows_tasks_and_with_use_ends_them(
    http: Way, alice: Client, tmp_path: Path
) -> None:
    def as_(token: str) -> AbstractAsyncContextManager[TaskClient]:
        return task_client(f"{http.url}/mcp", headers={"authorization": f"Bearer {token}"})

    session, gate = await opened_session(alice), Gate(tmp_path / "gate")
    await share(alice, session, "view")
    async with as_(ALICE) as owner, as_(BEN) as ben, as_(EVE) as eve:
        arguments = {"session_id": session, "fifo": str(gate.path)}
        task = {"taskId": (await owner.call("hold", arguments))["taskId"]}
        assert (await ben.get(task["taskId"]))["status"] == "working"
        named, other = {"task_id": task["taskId"]}, {"task_id": f"{UNKNOWN}.x"}
        running = await ben.call("call_result", {**named, "wait_seconds": 0})
        assert running["_meta"]["statehold/error"]["code"] == "still_running"
        refused = [await ben.call("call_cancel", each) for each in (named, other)]
        refused.append(await eve.call("call_result", named))
        assert len({each["content"][0]["text"] for each in refused}) == 1
        unknown = {"code": -32602, "message": "Task not found"}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params: JSON = {**task, "inputResponses": {}}
            assert (await eve.send(method, params))["error"] == unknown
            if method != "tasks/get":
                assert (await ben.send(method, params))["error"] == unknown
        await share(alice, session, "use")
        await ben.result("tasks/cancel", task)
        assert (await owner.end_of(task["taskId"]))["status"] == "cancelled"
        unshared = {"session_id": session, "subject": "ben", "issuer": "home"}
        await alice.call_tool("session_unshare", unshared)
        assert (await ben.send("tasks/get", task))["error"] == unknown
        assert (await owner.get(task["taskId"]))["status"] == "cancelled"


async def test_a_name_is_never_that_of_a_shared_session(alice: Client, ben: Client) -> None:
    name = f"shared {alice.protocol_version}"
    session = await opened_session(alice, name=name)
    await share(alice, session, "use")
    assert code_of(await ben.call_tool("inc", {"session_id": name})) == "session_not_found"


async def test_a_question_of_a_shared_session_reaches_the_one_who_calls(
    alice: Client, ben: Client
) -> None:
    session = await opened_session(alice)
    await share(alice, session, "use")
    assert not (await ben.call_tool("ask", {"session_id": session})).is_error


async def test_a_log_message_that_may_be_of_several_calls_reaches_the_owners_clients_only(
    http: Way,
) -> None:
    """A server on stdio does not say which call it logs for."""
    legacy, heard = replace(http, era="legacy"), dict[str, list[str]](ben=[], alice=[], hanging=[])

    def hears(name: str, token: str) -> JSON:
        async def log(params: Any) -> None:
            heard[name].append(params.data)

        return {**options(token), "logging_callback": log}

    async with (
        legacy.connect(**hears("alice", ALICE)) as alice,
        legacy.connect(**hears("hanging", ALICE)) as hanging,
        legacy.connect(**hears("ben", BEN)) as ben,
    ):
        session = await opened_session(alice)
        await share(alice, session, "use")
        target = {"session_id": session}

        async def is_active() -> bool:
            return structured(await alice.call_tool("session_info", target))["status"] == "active"

        async def log_until_heard() -> bool:
            await alice.call_tool("log", {**target, "text": "of alice"})
            return bool(heard["hanging"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ben.call_tool, "hang", target)
            await until(is_active)
            tasks.start_soon(hanging.call_tool, "hang", target)
            await until(log_until_heard)
            # The calls are answered: a client that ends in a cancelled one may lose its answer.
            await alice.call_tool("session_close", {**target, "force": True})
        assert set(heard["alice"]) == set(heard["hanging"]) == {"of alice"}
        assert heard["ben"] == []


async def test_shares_are_listed_for_both_sides_and_end(alice: Client, ben: Client) -> None:
    session, other = await opened_session(alice), await opened_session(alice)
    shared = await share(alice, session, "view")
    assert (shared["subject"], shared["issuer"], shared["rights"]) == ("ben", "home", "view")
    info = structured(await alice.call_tool("session_info", {"session_id": session}))
    assert [each["subject"] for each in info["shares"]] == ["ben"]
    seen = structured(await ben.call_tool("session_info", {"session_id": session}))
    assert "shares" not in seen
    listed = structured(await ben.call_tool("session_list", {"shared": True}))["sessions"]
    found = {each["session_id"]: each for each in listed}
    assert other not in found
    assert found[session]["rights"] == "view"
    assert found[session]["owner"] == {"subject": "alice", "issuer": ""}
    mine = structured(await ben.call_tool("session_list", {}))["sessions"]
    assert session not in {each["session_id"] for each in mine}
    ended = {"session_id": session, "subject": "ben", "issuer": "home"}
    assert structured(await alice.call_tool("session_unshare", ended))["was_shared"]
    assert not structured(await alice.call_tool("session_unshare", ended))["was_shared"]
    refused = await ben.call_tool("session_info", {"session_id": session})
    assert code_of(refused) == "session_not_found"


async def test_a_share_ends_with_its_time(alice: Client, ben: Client) -> None:
    session = await opened_session(alice)
    arguments = {"session_id": session}
    await share(alice, session, "use", expires_in_seconds=3600)
    assert await count(ben, session) == 1
    # A later share with the same principal replaces the first; a second is the shortest time.
    await share(alice, session, "use", expires_in_seconds=1)

    async def has_ended() -> bool:
        return (await ben.call_tool("session_info", arguments)).is_error is True

    await until(has_ended)
    assert code_of(await ben.call_tool("inc", arguments)) == "session_not_found"
    info = structured(await alice.call_tool("session_info", arguments))
    assert info.get("shares") is None
    listed = structured(await ben.call_tool("session_list", {"shared": True}))["sessions"]
    assert session not in {each["session_id"] for each in listed}
    assert await count(alice, session) == 2


async def test_a_malformed_share_is_refused(alice: Client) -> None:
    session = await opened_session(alice)
    for wrong in ({}, {"subject": "a", "group": "b"}, {"subject": "alice"}, {"subject": "a\nb"}):
        result = await alice.call_tool("session_share", {"session_id": session, **wrong})
        assert code_of(result) == "invalid_argument", wrong
    await alice.call_tool("session_close", {"session_id": session})
    result = await alice.call_tool("session_share", {"session_id": session, "subject": "ben"})
    assert code_of(result) == "session_closed"


async def test_resources_are_read_with_a_share_and_not_subscribed_to(
    alice: Client, ben: Client, eve: Client
) -> None:
    session = await opened_session(alice, state={"n": 7})
    await share(alice, session, "view")
    uri = f"session://{session}/state"
    content: Any = (await ben.read_resource(uri)).contents[0]
    assert content.text == '{"n":7}'
    with pytest.raises(MCPError):
        await eve.read_resource(uri)


@pytest.mark.parametrize("nodes", matrix(1, 2))
async def test_the_calls_of_a_sharee_count_to_its_own_rate(
    server: Running, settings: JSON, tmp_path: Path, nodes: int
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(settings))
    with ExitStack() as stack:
        servers = [server] * 2
        if nodes > 1:
            servers = [stack.enter_context(serving(config, data)) for _ in range(nodes)]
        async with (
            connect(servers[0], DORA) as dora,
            connect(servers[1], BEN) as ben,
            connect(servers[1], DORA) as dora_elsewhere,
            connect(servers[0], ALICE) as alice,
        ):
            session, other = await opened_session(dora), await opened_session(alice)
            # Each of two nodes admits half of the six.
            most = 6 // nodes
            await share(dora, session, "use")
            for number in range(10):
                assert await count(ben, session) == number + 1
            for number in range(most):
                assert await count(dora, session) == number + 11
            assert code_of(await dora.call_tool("inc", {"session_id": session})) == "session_limit"
            # Her rate is used up for sessions that others share with her, too.
            arguments = {"session_id": other, "subject": "dora", "rights": "use"}
            await alice.call_tool("session_share", arguments)
            refused = await dora_elsewhere.call_tool("inc", {"session_id": other})
            assert code_of(refused) == "session_limit"
            assert await count(ben, session) == most + 11
            assert await count(alice, other) == 1


@pytest.mark.parametrize("tool", matrix("echo", "state_update", "session_note"))
async def test_a_sharee_leaves_the_owner_room_for_operations(
    alice: Client, ben: Client, tool: str
) -> None:
    session = await opened_session(alice)
    await share(alice, session, "use")
    arguments = {"session_id": session, **ARGUMENTS.get(tool, {"text": "x"})}

    async def code(client: Client, operation: str) -> str | None:
        meta: Any = {"statehold/operation_id": operation}
        result = await client.call_tool(tool, arguments, meta=meta)
        return code_of(result) if result.is_error else None

    codes = [await code(ben, f"ben {number}") for number in range(RECEIPTS)]
    assert codes == [None] * 9 + ["session_limit"] * 3
    codes = [await code(alice, f"alice {number}") for number in range(4)]
    assert codes == [None] * 3 + ["session_limit"]


async def test_a_session_of_another_node_is_shared(settings: JSON, tmp_path: Path) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(settings))
    with serving(config, data) as owner, serving(config, data) as edge:
        async with connect(owner, ALICE) as alice, connect(edge, BEN) as ben:
            session = await opened_session(alice)
            assert await count(alice, session) == 1
            arguments = {"session_id": session}
            assert code_of(await ben.call_tool("inc", arguments)) == "session_not_found"
            await share(alice, session, "use")
            assert await count(ben, session) == 2
            assert "shares" not in structured(await ben.call_tool("session_info", arguments))
            assert await count(alice, session) == 3
            await share(alice, session, "view")
            assert code_of(await ben.call_tool("inc", arguments)) == "session_not_found"
            assert not (await ben.call_tool("state_get", arguments)).is_error


def connect(running: Running, token: str) -> Any:
    return Way("http", "modern", Path(), running.data, url=running.url).connect(**options(token))
