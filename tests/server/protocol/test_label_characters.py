"""Labels from callers, and the values stored beside them, are the same on every database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import Client
from support.databases import DatabaseServer
from support.gateway_process import (
    JSON,
    Way,
    code_of,
    opened_session,
    service,
    structured,
    text_of,
    toml,
)
from support.selection import matrix

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

CONTROLS = ["\0", "r\0", "\x01", "a\nb", "\x1f", "\x7f", "\x80", "\x9f"]
WORDS = "a\0b\n\x1f\x7f\x9f é \U0001f600"


EACH_DATABASE = pytest.mark.parametrize(
    "client", matrix("file", "postgresql", "mariadb"), indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=["file"])
async def client(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Client]:
    """A client of a Statehold, with a kind of database."""
    config, data = (
        tmp_path_factory.mktemp("config") / "statehold.toml",
        tmp_path_factory.mktemp("d"),
    )
    document: JSON = {"services": {"quick": service("asking")}, "toolsets": TOOLSETS}
    if request.param != "file":
        server: DatabaseServer = request.getfixturevalue(request.param)
        document["store"] = {"url": server.fresh()}
    config.write_text(toml(document))
    async with open_gateway(
        load(config=config, flags={"data": str(data)}), address="tests"
    ) as gateway:
        way = Way(
            "memory", "modern", config, data, mcp_server=StateholdServer(gateway, version="0.0.0")
        )
        async with way.connect() as connected:
            yield connected


TOOLSETS = ["core", "state", "history", "admin"]


async def entries(client: Client, session: str, **wanted: Any) -> list[JSON]:
    arguments = {"session_id": session, **wanted}
    return structured(await client.call_tool("session_history", arguments))["entries"]


@pytest.mark.parametrize("label", ["run_id", "operation_id", "operation_instance", "settled"])
async def test_a_call_whose_label_has_a_control_character_is_not_sent(
    client: Client, label: str
) -> None:
    session = await opened_session(client)
    for wrong in CONTROLS:
        meta: Any = {f"statehold/{label}": [wrong] if label == "settled" else wrong}
        tool = "state_update" if label == "operation_instance" else "inc"
        refused = await client.call_tool(tool, {"session_id": session, "values": {}}, meta=meta)
        assert code_of(refused) == "invalid_argument"
        assert f"statehold/{label}" in text_of(refused)
    assert structured(await client.call_tool("inc", {"session_id": session}))["count"] == 1
    assert len(await entries(client, session, kind="call")) == 1


@pytest.mark.parametrize("label", ["role", "run_id"])
async def test_a_note_whose_label_has_a_control_character_is_refused(
    client: Client, label: str
) -> None:
    session = await opened_session(client)
    for wrong in CONTROLS:
        arguments = {"session_id": session, "role": "user", "content": "x", label: wrong}
        refused = await client.call_tool("session_note", arguments)
        assert code_of(refused) == "invalid_argument"
        assert label in text_of(refused)
    assert await entries(client, session, kind="message") == []


@pytest.mark.parametrize("wanted", ["run", "role", "skip_roles", "tool", "skip_tools", "status"])
async def test_a_filter_with_a_control_character_is_refused(client: Client, wanted: str) -> None:
    session = await opened_session(client)
    for wrong in ("r\0", ["user", "\x80"]):
        arguments = {"session_id": session, wanted: wrong}
        refused = await client.call_tool("session_history", arguments)
        assert code_of(refused) == "invalid_argument"
        assert wanted in text_of(refused)


@pytest.mark.parametrize("label", ["user_id", "workflow_id"])
async def test_a_session_has_no_label_with_a_control_character(client: Client, label: str) -> None:
    for wrong in CONTROLS:
        refused = await client.call_tool("session_create", {label: wrong})
        assert code_of(refused) == "invalid_argument"
        assert label in text_of(refused)


@EACH_DATABASE
async def test_messages_and_arguments_may_have_any_character(client: Client) -> None:
    session = await opened_session(client)
    arguments = {"session_id": session, "text": WORDS, f"name {WORDS}": 2**70}
    meta: Any = {"statehold/run_id": "läuft 1", "statehold/operation_id": "é \U0001f600"}
    metas: list[Any] = [None, meta]
    for more in metas:
        await client.call_tool("echo", arguments, meta=more)
    noted = {"session_id": session, "role": "user", "content": WORDS}
    assert structured(await client.call_tool("session_note", noted))["entry"]["content"] == WORDS
    journal = await entries(client, session, kind=["call", "message"])
    del arguments["session_id"]
    assert [entry.get("arguments") for entry in journal] == [arguments, arguments, None]
    assert (journal[1]["run_id"], journal[1]["operation_id"]) == ("läuft 1", "é \U0001f600")
    assert journal[2]["content"] == WORDS
    written = {"session_id": session, "text": WORDS, "topics": [WORDS]}
    summary = structured(await client.call_tool("session_summary", written))["summary"]
    assert summary["text"] == WORDS.replace("\0", "\ufffd")
    assert summary["topics"] == [WORDS]


@EACH_DATABASE
async def test_a_document_with_such_a_label_is_refused(client: Client) -> None:
    session = await opened_session(client)
    meta: Any = {"statehold/run_id": "one", "statehold/operation_id": "two"}
    await client.call_tool("inc", {"session_id": session}, meta=meta)
    noted = {"session_id": session, "role": "user", "content": WORDS, "run_id": "one"}
    await client.call_tool("session_note", noted)
    exported = await client.call_tool("session_export", {"session_id": session})
    document = structured(exported)["document"]
    journal = document["journal"]
    call = next(n for n, entry in enumerate(journal) if entry["kind"] == "call")
    for place, part, key in (
        (f"journal.{call}.run", journal[call], "run"),
        (f"journal.{call}.operation_id", journal[call], "operation_id"),
        (f"journal.{call}.tool", journal[call], "tool"),
        (f"journal.{len(journal) - 1}.role", journal[-1], "role"),
        ("receipts.0.operation_id", document["receipts"][0], "operation_id"),
    ):
        before, part[key] = part[key], "r\0"
        refused = await client.call_tool("session_import", {"document": document})
        assert code_of(refused) == "invalid_argument"
        assert place in text_of(refused)
        assert "control character" in text_of(refused)
        part[key] = before
    imported = structured(await client.call_tool("session_import", {"document": document}))
    [message] = await entries(client, imported["session_id"], kind="message")
    assert message["content"] == WORDS
