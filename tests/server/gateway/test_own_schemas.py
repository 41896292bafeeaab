"""The schemas of our own tools have a form that agent frameworks convert: plain objects, and nothing to resolve."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client
from support.gateway_process import JSON, service, toml

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

ALL = ["core", "lifecycle", "state", "history", "branch", "admin", "view", "calls"]

FREE = {
    "session_create": {"state", "state_schema", "metadata"},
    "session_list": {"metadata"},
    "session_rename": {"metadata"},
    "session_import": {"document"},
}
"""The arguments that hold any JSON object."""


def parts(schema: Any) -> Generator[JSON]:
    """Yield every object of a schema, itself included."""
    if isinstance(schema, dict):
        found = cast("JSON", schema)
        yield found
        for part in found.values():
            yield from parts(part)
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from parts(part)


@pytest.mark.parametrize("pinned", [None, "p"])
async def test_own_schemas_have_no_references_and_say_nothing_of_additional_properties(
    tmp_path: Path, pinned: str | None
) -> None:
    """The strict conversion of OpenAI's Agents SDK raises for an open object, that of google-genai for a closed one."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"toolsets": ALL, "services": {"quick": service("quick")}}))
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with open_gateway(loaded, address="test") as gateway:
        own = set(gateway.tools.own)
        async with Client(
            StateholdServer(gateway, version="0", pinned_name=pinned), cache=None
        ) as client:
            tools = [tool for tool in (await client.list_tools()).tools if tool.name in own]
    names = {tool.name for tool in tools}
    assert names == own if pinned is None else names < own
    for tool in tools:
        for schema in (tool.input_schema, tool.output_schema):
            for part in parts(schema):
                assert not part.keys() & {"$ref", "$defs", "definitions", "propertyNames"}
                assert "additionalProperties" not in part
        assert tool.input_schema["type"] == "object"
        properties: JSON = tool.input_schema["properties"]
        free = {
            name
            for name, schema in properties.items()
            for part in parts(schema)
            if part.get("type") == "object" and "properties" not in part
        }
        assert free == FREE.get(tool.name, set())
        assert not {"allOf", "oneOf"} & {key for part in parts(properties) for key in part}
