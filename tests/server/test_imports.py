"""An imported document is not trusted: a recipe restores only those parts of it that the recipe would have saved."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.gateway_process import JSON, code_of, opened_session, service, structured, text_of
from support.selection import matrix

WAYS = [("memory", "legacy")]
SECRET = "the key of the machine"


@pytest.fixture(scope="module")
def settings() -> JSON:
    by_file = {
        "save": [
            {
                "tool": "write",
                "arguments": {"path": "{dir}/value.json"},
                "keep": {"value_file": "file:value.json"},
            }
        ],
        "restore": [{"tool": "read", "arguments": {"path": "{value_file}"}}],
    }
    by_text = {
        "save": [{"tool": "tell", "keep": {"value": "text:<(.*)>"}}],
        "restore": [{"tool": "put", "arguments": {"value": "{value}{more}"}}],
    }
    return {
        "toolsets": ["core", "lifecycle", "admin"],
        "services": {
            "file": service("keeper", prefix="file_", recipe=by_file),
            "text": service("keeper", prefix="text_", recipe=by_text),
        },
    }


async def document_of(client: Client) -> JSON:
    session = await opened_session(client)
    for service_name in ("file", "text"):
        value = {"session_id": session, "value": f"kept by {service_name}"}
        assert not (await client.call_tool(f"{service_name}_put", value)).is_error
    await client.call_tool("session_pause", {"session_id": session})
    export = {"session_id": session, "secrets": True}
    return structured(await client.call_tool("session_export", export))["document"]


def change(document: JSON, service_name: str, edit: Callable[[JSON], Any]) -> None:
    [bound] = [one for one in document["bindings"] if one["service"] == service_name]
    snapshot = json.loads(base64.b64decode(bound["snapshot"]["data"]))
    edit(snapshot)
    bound["snapshot"]["data"] = base64.b64encode(json.dumps(snapshot).encode()).decode()


async def take(client: Client, session: str, service_name: str) -> str:
    result = await client.call_tool(f"{service_name}_take", {"session_id": session})
    own_text, _, _ = text_of(result).partition("\n\nNote from Statehold: ")
    return own_text.splitlines()[-1]


async def test_an_unchanged_document_is_restored(client: Client) -> None:
    document = await document_of(client)
    arguments = {"document": document}
    imported = structured(await client.call_tool("session_import", arguments))
    assert imported["left_out"] == []
    for service_name in ("file", "text"):
        answer = await take(client, imported["session_id"], service_name)
        assert f"kept by {service_name}" in answer


@pytest.mark.parametrize("has_blobs", matrix(True, False))
async def test_a_document_does_not_choose_the_path_of_a_file(
    client: Client, tmp_path: Path, has_blobs: bool
) -> None:
    (tmp_path / "secret").write_text(json.dumps(SECRET))
    document = await document_of(client)

    def edit(snapshot: JSON) -> None:
        snapshot["data"] = {"value_file": str(tmp_path / "secret"), "dir": str(tmp_path)}
        if not has_blobs:
            snapshot["blobs"] = {}

    change(document, "file", edit)
    arguments = {"document": document}
    imported = structured(await client.call_tool("session_import", arguments))
    result = await client.call_tool("file_take", {"session_id": imported["session_id"]})
    assert SECRET not in text_of(result)
    assert ("kept by file" in text_of(result)) is has_blobs
    [left_out] = imported["left_out"]
    assert "value_file" in left_out


async def test_an_import_drops_values_that_a_recipe_does_not_keep(client: Client) -> None:
    document = await document_of(client)

    def edit(snapshot: JSON) -> None:
        snapshot["data"]["more"] = "injected"
        snapshot["blobs"]["other"] = ""

    change(document, "text", edit)
    arguments = {"document": document}
    imported = structured(await client.call_tool("session_import", arguments))
    answer = await take(client, imported["session_id"], "text")
    assert "kept by text" in answer
    assert "injected" not in answer
    export = {"session_id": imported["session_id"], "secrets": True}
    again = structured(await client.call_tool("session_export", export))["document"]
    [bound] = [one for one in again["bindings"] if one["service"] == "text"]
    assert json.loads(base64.b64decode(bound["snapshot"]["data"])).keys() == {"data", "blobs"}
    assert b"injected" not in base64.b64decode(bound["snapshot"]["data"])


@pytest.mark.parametrize(
    ("service_name", "part", "value"),
    matrix(
        ("text", "data", {"value": {"no": "text"}}),
        ("text", "data", ["a list"]),
        ("file", "blobs", {"value_file": "no base64!"}),
        ("file", "blobs", {"value_file": 5}),
    ),
    ids=["no text", "data is a list", "no base64", "a number as a file"],
)
async def test_a_snapshot_of_another_shape_is_refused(
    client: Client, service_name: str, part: str, value: Any
) -> None:
    document = await document_of(client)
    change(document, service_name, lambda snapshot: snapshot.update({part: value}))
    refused = await client.call_tool("session_import", {"document": document})
    assert code_of(refused) == "invalid_argument"
    assert ".snapshot" in text_of(refused)
