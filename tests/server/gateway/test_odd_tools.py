"""Tools with schemas and names that few servers have are listed, and can be called."""

from __future__ import annotations

import re

import pytest
from mcp import Client
from support.gateway_process import JSON, opened_session, service, structured


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"toolsets": ["core", "admin"], "services": {"odd": service("bad", "odd-tools")}}


async def tools_of(client: Client) -> dict[str, JSON]:
    listed = (await client.list_tools()).tools
    return {tool.name: tool.model_dump(by_alias=True, exclude_unset=True) for tool in listed}


async def test_patterns_of_ecmascript_are_listed_as_they_came(client: Client) -> None:
    tool = (await tools_of(client))["patterns"]
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        properties = schema["properties"]
        assert properties["property"] == {
            "type": "string",
            "description": "property",
            "pattern": r"^\p{L}+$",
        }
        assert properties["class"]["pattern"] == r"^[\w-.]+$"
        assert properties["anything"]["pattern"] == "[^]"
        assert properties["nested"]["properties"]["group"]["pattern"] == r"(?<year>\d{4})"
        assert "class" in schema["required"]


async def test_a_tool_whose_name_clients_reject_is_called_by_an_alias(client: Client) -> None:
    tools = await tools_of(client)
    aliases = {
        name: alias
        for name in ("get weather", "get:weather", "天气", "naïve", "long " * 40)
        for alias, tool in tools.items()
        if f'calls this tool "{name[:128]}"' in tool.get("description", "")
    }
    assert len(set(aliases.values())) == 5
    assert aliases["get weather"].startswith("get_weather_")
    assert aliases["naïve"].startswith("naive_")
    session = await opened_session(client)
    for name, alias in aliases.items():
        assert re.fullmatch("[A-Za-z0-9_-]{1,64}", alias)
        result = await client.call_tool(alias, {"session_id": session, "a": 1})
        assert structured(result)["name"] == name
        assert structured(result)["arguments"] == {"a": 1}
    status = structured(await client.call_tool("service_list", {}))["services"][0]
    assert f'"get weather" is {aliases["get weather"]}' in status["renamed"]
