"""Features of an embedded Statehold only: services that change while it runs, and settings of every kind."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.gateway_process import Running, service
from support.selection import matrix

from statehold.access.config.types import ConfigError
from statehold.client import Client, connect
from statehold.client.errors import (
    InvalidArgument,
    NotAllowed,
    ServiceNotBound,
    ServiceUnavailable,
    UnknownTool,
)
from statehold.server.config.model import Config
from statehold.server.gateway.tool_list import ToolList
from statehold.sessions.errors import StoreUnavailable


async def test_a_service_is_added_while_it_runs(leaks: Any) -> None:
    async with connect(services={"quick": service("asking")}) as client, client.session() as older:
        with pytest.raises(InvalidArgument, match="another name"):
            await client.add_service("quick", service("asking", prefix="x_"))
        with pytest.raises(ServiceUnavailable):
            await client.add_service("bad", service("bad", "exit-at-start", prefix="x_"))
        with pytest.raises(ConfigError):
            await client.add_service("wrong", {"nothing": 1})
        assert [each.service for each in await client.list_services()] == ["quick"]
        added = await client.add_service("more", service("asking", prefix="more_"))
        assert (added.service, added.status) == ("more", "available")
        assert "more_inc" in {tool.name for tool in await client.list_tools()}
        async with client.session() as newer:
            assert (await newer.call("more_inc")).text == "1"
        with pytest.raises(ServiceNotBound):
            await older.call("more_inc")
        await older.bind("more")
        assert (await older.call("more_inc")).text == "1"
        assert (await older.call("inc")).text == "1"
    with anyio.fail_after(10):
        await leaks.check()


def open_browsers(folder: Path) -> list[Path]:
    """Return the folders of the browser services that are open."""
    return list(folder.glob("statehold-browser-*"))


async def test_a_service_that_cannot_be_offered_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: Any
) -> None:
    def refuse(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with connect(services={"quick": service("asking")}) as client:
        before = [tool.name for tool in await client.list_tools()]
        with monkeypatch.context() as fault, anyio.fail_after(10):
            fault.setattr(ToolList, "set", refuse)
            with pytest.raises(ZeroDivisionError):
                await client.add_service("browser", {})
        assert open_browsers(tmp_path) == []
        assert [each.service for each in await client.list_services()] == ["quick"]
        assert [tool.name for tool in await client.list_tools()] == before
        async with client.session() as s:
            assert (await s.call("inc")).text == "1"
        await client.add_service("browser", {})
        assert len(open_browsers(tmp_path)) == 1
    assert open_browsers(tmp_path) == []
    with anyio.fail_after(10):
        await leaks.check()


@pytest.mark.thorough
async def test_a_service_that_is_still_starting_keeps_the_names_of_its_tools() -> None:
    async with connect(services={"slow": service("bad", "slow-start", "0.3")}) as client:
        await client.add_service("more", service("quick"))
        async with client.session() as s:
            await s.call("more_inc")
            assert (await s.call("inc")).text == "1"


@pytest.mark.thorough
async def test_an_added_service_has_the_names_that_are_left() -> None:
    async with connect(services={"one": service("quick"), "two": service("quick")}) as client:
        await client.add_service("more", service("quick"))
        names = [tool.name for tool in await client.list_tools()]
        assert [name for name in names if name.endswith("inc")] == ["inc", "two_inc", "more_inc"]
        async with client.session() as s:
            assert (await s.call("more_inc")).text == "1"
            assert (await s.call("inc")).text == "1"


async def test_an_error_about_a_missing_toolset_has_the_remedy() -> None:
    config = Config(toolsets=["core"])
    async with connect(config=config, services={"quick": service("asking")}) as client:
        added = await client.add_service("more", service("asking", prefix="more_"))
        assert (added.service, added.status) == ("more", "available")
        with pytest.raises(NotAllowed) as caught:
            await client.list_services()
        assert "admin" in caught.value.recovery
        async with client.session() as s:
            with pytest.raises(NotAllowed, match="session_pause"):
                await s.pause()
            with pytest.raises(UnknownTool):
                await s.call("session_stop")


async def test_a_server_is_not_given_services(server: Running) -> None:
    async with connect(server.url) as client:
        with pytest.raises(NotAllowed):
            await client.add_service("more", service("asking", prefix="more_"))


@pytest.mark.thorough
async def test_settings_come_as_a_file_as_a_value_or_as_a_clients_table(
    tmp_path: Path, config_file: Path
) -> None:
    async def services(**options: Any) -> set[str]:
        async with connect(**options) as client:
            return {each.service for each in await client.list_services()}

    table = {"mcpServers": {"one": service("asking")}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(table))
    assert await services(services=table) == {"one"}
    assert await services(services=table["mcpServers"]) == {"one"}
    assert await services(services=file) == {"one"}
    assert await services(config=config_file, services=str(file)) >= {"one", "quick", "other"}
    assert await services(config=Config(), services=table) == {"one"}
    assert await services() == {"browser"}
    with pytest.raises(ConfigError):
        connect(services={"one": {"command": 5}})


@pytest.mark.parametrize(
    ("text", "options"),
    matrix(
        ('data = "kept"', {}),
        ('ephemeral = false\ndata = "kept"\n[limits]\nqueue = 5', {}),
        ('[store]\nurl_file = "address"', {}),
        ("ephemeral = true", {"data": "kept"}),
    ),
)
async def test_sessions_stay_where_the_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "statehold.toml"
    file.write_text(text)
    (tmp_path / "address").write_text("postgresql://u@127.0.0.1:1/x")
    if "url_file" in text:
        with pytest.raises(StoreUnavailable):
            async with connect(config=file, services={}, **options):
                pass
        return
    async with connect(config=file, services={}, **options) as client:
        await client.create("x", state={"a": 1})
    async with connect(config=file, services={}, **options) as client:
        assert await (await client.get("x")).state.get("/a") == 1
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://127.0.0.1:1", "stdio": ["statehold"]},
        {"url": "http://127.0.0.1:1", "services": {}},
        {"url": "http://127.0.0.1:1", "env": {}},
        {"stdio": ["statehold"], "data": "x"},
        {"token": "x"},
    ],
)
def test_contradicting_options_are_refused(options: Any) -> None:
    with pytest.raises(TypeError):
        connect(**options)


@pytest.mark.parametrize("url", ["127.0.0.1:8931", "ftp://x", "http://", "http://x/s/name/mcp"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="server"):
        connect(url)


async def test_values_are_copied_in_and_out(embedded: Client) -> None:
    values: dict[str, Any] = {"list": [1]}
    async with embedded.session(state=values, metadata=values, services=["quick"]) as s:
        values["list"].append(2)
        read = await s.state.get()
        assert read == {"list": [1]}
        read["list"].append(3)
        assert await s.state.get() == {"list": [1]}
        assert (await s.info()).metadata == {"list": [1]}
        (await s.info()).metadata["list"].append(4)
        assert (await s.info()).metadata == {"list": [1]}
        first = await s.call_tool("inc", operation_id="once")
        first.payload["content"].clear()
        assert (await s.call_tool("inc", operation_id="once")).text == "1"


async def test_an_embedded_statehold_keeps_nothing_and_changes_nothing_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("STATEHOLD_DATA", str(tmp_path / "data"))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with connect(services={"quick": service("asking")}) as client, client.session() as s:
        await s.call("inc")
        await s.state.update({"n": 1})
        assert {n: signal.getsignal(n) for n in before} == before
    assert os.listdir(tmp_path) == []


async def test_an_embedded_statehold_keeps_its_sessions_in_a_folder(tmp_path: Path) -> None:
    for number in (1, 2):
        client = connect(services={"quick": service("asking")}, data=tmp_path / "kept")
        async with client, client.session("mine", keep=True) as s:
            assert s.attached is (number == 2)
            assert await s.state.update({"n": number}) == number
    assert os.listdir(tmp_path) == ["kept"]
