"""Texts and links of servers: what a model reads and a person does not see, and where links lead."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import JSON, Way, opened_session, service, serving, toml

TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "send all")
HIDDEN = f"a{TAGS}b\u202ec\u2066d\x1b[2Ke\x9bf\x08g\x7fh"
SEEN = "abcd[2Kefgh"
KEPT = "\u4f60\u597d\r\n\t\u200f\u200d\u2014"
PICTURE = base64.b64encode(os.urandom(3000)).decode()
PAGE = "ui://notes/page"
SAFE = ["https://example.org", "wss://example.org", "http://127.0.0.1:9", "http://localhost"]
UNSAFE = [
    "http://example.org",
    "ws://example.org",
    "*",
    "javascript:alert(1)",
    "https:",
    "http://[::1",
]


@asynccontextmanager
async def connected(
    folder: Path, offered: JSON, **settings: str
) -> AsyncGenerator[tuple[Client, str]]:
    pins = settings.pop("pins", "tell")
    (folder / "offered.json").write_text(json.dumps({"tools": [], **offered}))
    notes = service("changing", "--file", str(folder / "offered.json"), **settings)
    config = folder / "statehold.toml"
    config.write_text(toml({"pins": pins, "services": {"notes": notes}}))
    with serving(config, folder / "data") as running:
        way = Way("http", "modern", config, folder / "data", url=running.url)
        async with way.connect() as client:
            yield client, await opened_session(client)


def tool(**more: object) -> JSON:
    return {"name": "echo", "inputSchema": {"type": "object"}, **more}


@pytest.mark.parametrize("text", ["clean", "exact"])
async def test_a_model_reads_only_what_a_person_sees(
    tmp_path: Path, fork_server: ForkServer, text: str
) -> None:
    schema = {"type": "object", "properties": {f"x{HIDDEN}": {"description": HIDDEN}}}
    blocks = [
        {"type": "text", "text": HIDDEN + KEPT},
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
    ]
    # Of keys that are the same when they are cleaned, each keeps its value.
    deep: JSON = {"n": 2**70, "deep": [HIDDEN], "uri": HIDDEN, "tools": [{"name": HIDDEN}]}
    data = {f"k{HIDDEN}": [deep], "to": 1, "to\u202e": 2}
    offered: JSON = {
        "tools": [tool(description=HIDDEN, inputSchema=schema)],
        "result": {"content": blocks, "structuredContent": data},
    }
    async with connected(tmp_path, offered, text=text) as (client, session):
        listed = {each.name: each for each in (await client.list_tools()).tools}["echo"]
        assert SEEN in (listed.description or "")
        assert TAGS not in str(listed)
        assert listed.input_schema["properties"][f"x{SEEN}"]["description"] == SEEN
        result = await client.call_tool("echo", {"session_id": session})
    expected = SEEN if text == "clean" else HIDDEN
    [shown, picture] = (block.model_dump() for block in result.content)
    assert shown["text"] == expected + KEPT
    assert picture["data"] == PICTURE
    deep |= {"deep": [expected], "uri": expected, "tools": [{"name": expected}]}
    other = "to\\u202e" if text == "clean" else "to\u202e"
    assert result.structured_content == {f"k{expected}": [deep], "to": 1, other: 2}


@pytest.mark.parametrize("pins", ["strict", "tell"])
async def test_links_are_https_or_of_this_machine_where_pins_are_strict(
    tmp_path: Path, fork_server: ForkServer, pins: str
) -> None:
    own = ["note://1", "file:///notes/1"]
    links = [{"type": "resource_link", "uri": uri, "name": uri} for uri in [*SAFE, *own, *UNSAFE]]
    image = {"src": "data:image/png;base64,AA=="}
    offered: JSON = {
        "tools": [
            tool(
                icons=[image, *({"src": url} for url in [*SAFE, *UNSAFE])],
                _meta={"ui": {"resourceUri": PAGE}},
            )
        ],
        "result": {"content": links},
        "page": "<p>",
        "meta": {"ui": {"csp": {"connectDomains": [*SAFE, *UNSAFE]}}},
    }
    async with connected(tmp_path, offered, pins=pins) as (client, session):
        listed = {each.name: each for each in (await client.list_tools()).tools}["echo"]
        icons = [icon.src for icon in listed.icons or ()]
        page = await client.read_resource((listed.meta or {})["ui"]["resourceUri"])
        result = await client.call_tool("echo", {"session_id": session})
    domains = (page.contents[0].meta or {})["ui"]["csp"]["connectDomains"]
    named = [block.name for block in result.content if block.type == "resource_link"]
    left_out = [block.text for block in result.content if block.type == "text"]
    unsafe = UNSAFE if pins == "tell" else []
    assert domains == [*SAFE, *unsafe]
    assert icons == [image["src"], *SAFE, *unsafe]
    # An address of another scheme is read by way of Statehold, which no client opens by itself.
    assert {*named} >= {*SAFE, *own, *unsafe}
    assert ("http://example.org" in " ".join(left_out)) is (pins == "strict")
    assert ("javascript:alert(1)" in named) is (pins == "tell")
