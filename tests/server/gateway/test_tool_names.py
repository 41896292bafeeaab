"""Tools of one name in several services: each is offered, and which one keeps the name depends on the configuration only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    JSON,
    opened_session,
    service,
    structured,
    text_of,
    toml,
)

from statehold.server.config.load import load
from statehold.server.config.model import TOOLSETS
from statehold.server.exit_codes import OK
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.shell.main import main
from statehold.tools.own.toolsets import OWN_NAMES, own_names

CLASHING = {"one": service("naming", "read_file", "only"), "two": service("naming", "read_file")}


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """`async with started(settings) as gateway`: a gateway in this process."""

    def start(settings: JSON) -> Any:
        config = tmp_path / "statehold.toml"
        config.write_text(toml(settings))
        flags = {"data": str(tmp_path / "data")}
        return open_gateway(load(config=config, services=None, flags=flags), address="test")

    return start


async def names(client: Client) -> list[str]:
    tools = (await client.list_tools()).tools
    return [tool.name for tool in tools if tool.name.endswith(("read_file", "session_create"))]


async def service_of(client: Client, session: str, tool: str) -> str:
    """Return the service that a tool belongs to, which a call of it must have reached."""
    result = await client.call_tool(tool, {"session_id": session})
    assert not result.is_error, text_of(result)
    history = await client.call_tool("session_history", {"session_id": session, "last": 1})
    return structured(history)["entries"][-1]["service"]


async def test_our_own_tools_keep_their_names_even_if_they_are_not_offered(started: Any) -> None:
    services = {"terminal": service("naming", "session_create", "read_file")}
    async with started({"services": services}) as gateway:
        for pinned in (None, "mine"):
            mcp_server = StateholdServer(gateway, version="0", pinned_name=pinned)
            async with Client(mcp_server, cache=None) as client:
                tool_names = await names(client)
            assert tool_names[-2:] == ["terminal_session_create", "read_file"]


async def test_prefix_decides_by_hand(started: Any, caplog: pytest.LogCaptureFixture) -> None:
    services = {**CLASHING, "two": {**CLASHING["two"], "prefix": "second_"}}
    async with (
        started({"services": services}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        assert await names(client) == ["session_create", "read_file", "second_read_file"]
    assert "had this name first" not in caplog.text


async def test_the_order_of_the_configuration_decides_and_not_the_order_of_arrival(
    started: Any,
) -> None:
    services = {"one": service("bad", "slow-start", "0.5"), "two": service("quick")}
    async with (
        started({"services": services}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        with anyio.fail_after(20):
            await gateway.probes.ready()
        tool_names = [tool.name for tool in (await client.list_tools()).tools]
        assert [name for name in tool_names if name.endswith("inc")] == ["inc", "two_inc"]


@pytest.mark.thorough
async def test_a_call_waits_for_the_earlier_service_that_may_have_its_tool(started: Any) -> None:
    services = {"one": service("bad", "slow-start", "0.5"), "two": service("quick")}
    async with (
        started({"services": services}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        session = await opened_session(client)
        assert await service_of(client, session, "inc") == "one"
        assert await service_of(client, session, "two_inc") == "two"


async def test_the_names_of_our_tools_are_known_without_a_server(started: Any) -> None:
    async with started({"toolsets": list(TOOLSETS), "services": {}}) as gateway:
        assert list(gateway.tools.own) == own_names(gateway.config.toolsets, shares=False)
    assert OWN_NAMES.keys() == set(TOOLSETS)


def test_services_check_reports_renamed_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": CLASHING}))
    assert main(["services", "check", "--config", str(config)]) == OK
    output = capsys.readouterr().out
    assert "two: one had this name first: read_file is two_read_file; prefix in" in output
    assert main(["services", "check", "--json", "--config", str(config)]) == OK
    checks = json.loads(capsys.readouterr().out)["services"]
    renamed = {check["service"]: check["renamed"] for check in checks}
    assert renamed["one"] is None
    assert "two_read_file" in renamed["two"]


def test_services_check_reports_aliases_of_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"odd": service("bad", "odd-tools")}}))
    assert main(["services", "check", "--config", str(config)]) == OK
    output = capsys.readouterr().out
    assert 'odd: clients would reject these names: "get weather" is get_weather_' in output
