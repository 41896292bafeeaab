"""The sources of a store's services, the files that it writes, and a store on a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import Running, service

from statehold.client.errors import (
    InvalidArgument,
    NameTaken,
    NotAllowed,
    ServerUnreachable,
    ServiceUnavailable,
)
from statehold.client.integrations.mcpstore import MCPStore
from statehold.client.protocol import retry


def test_arguments_and_methods_of_services_are_those_of_mcpstore(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    table = {"mcpServers": {"one": service("asking")}}
    file.write_text(json.dumps(table))
    with MCPStore.setup_store(mcpjson_path=file, debug="warning") as store:
        context = store.for_store()
        assert context.get_service_info("one").service == "one"
        assert context.get_service_status("one")["service"] == "one"
        assert context.wait_service("one").status == "available"
        checked = context.check_services()
        assert (checked["active_services"], len(checked["services"])) == (1, 1)
        assert context.show_config()["mcpServers"].keys() == {"one"}
        schemas = [tool.input_schema for tool in context.list_tools()]
        assert not any("session_id" in schema["properties"] for schema in schemas)
        with context.with_session("task") as s:
            assert [s.use_tool("inc").text for _ in range(2)] == ["1", "2"]
            assert context.restart_service("one")
            assert s.use_tool("inc").text == "1"
        with pytest.raises(ServiceUnavailable, match="there is one"):
            context.get_service_info("two")
        with pytest.raises(ServiceUnavailable) as caught:
            store.for_agent("a").wait_service("two")
        assert "for_agent('a').add_service" in caught.value.recovery
    assert json.loads(file.read_text()) == table
    with pytest.raises(TypeError):
        MCPStore.setup_store(services=table, mcpjson_path=file)


@pytest.mark.thorough
def test_services_come_in_every_form(tmp_path: Path, counter_server: Callable[..., str]) -> None:
    """A client's file is read unchanged, including its other settings."""
    table: dict[str, Any] = {
        "mcpServers": {
            "one": {**service("quick"), "timeout": 60, "autoApprove": ["inc"]},
            "two": {"url": counter_server("http"), "transport": "streamable-http"},
        }
    }
    file = tmp_path / "claude_desktop_config.json"
    file.write_text(json.dumps(table))
    listed = [{"name": "three", **service("quick"), "description": "counts"}]
    with MCPStore.setup_store() as store:
        context = store.for_store().add_service(file).add_service(listed)
        store.for_agent("a").add_service({"mcpServers": {"one": service("quick")}})
        context.add_service({"name": "four", "url": counter_server("sse")})
        names = [each.service for each in context.list_services()]
        assert names == ["one", "two", "three", "four"]
        for name in names:
            assert context.wait_service(name).status == "available"
            assert context.use_tool(f"{name}_inc").text == "1"
        with pytest.raises(ServiceUnavailable, match="there is one, two"):
            context.wait_service("nosuch")
        with pytest.raises(ServiceUnavailable):
            context.add_service({"name": "bad", **service("bad", "exit-at-start")})
        assert [each.service for each in context.list_services()] == names
        for wrong in ({"url": "http://127.0.0.1/sse"}, {"mcpServers": {"one": "quick"}}):
            with pytest.raises(InvalidArgument):
                context.add_service(wrong)
    table["mcpServers"]["bad"] = service("bad", "exit-at-start")
    with MCPStore.setup_store(services=table) as store:
        assert store.for_store().use_tool("one_inc").text == "1"
        with pytest.raises(ServiceUnavailable, match="bad is not available: "):
            store.for_store().wait_service("bad", timeout=0.1)
        assert store.for_agent("a").list_services() == []


def test_sessions_are_known_again_where_there_is_a_folder(tmp_path: Path) -> None:
    """The sessions are paused and keep their state, and one session moves to another space as a document."""
    counter = {"name": "counter", **service("quick")}
    with MCPStore.setup_store(data=tmp_path) as store:
        agent = store.for_agent("keeper").add_service(counter)
        first = agent.create_session("kept")
        first.bind_service("counter").native.state.update({"step": 2})
        assert first.use_tool("inc").text == "1"
    with MCPStore.setup_store(data=tmp_path) as store:
        agent = store.for_agent("keeper").add_service(counter)
        (again,) = agent.list_sessions()
        assert (again.id, again.session_info()["status"]) == (first.id, "paused")
        assert again.native.state.get() == {"step": 2}
        assert again.list_services() == ["counter"]
        result = again.use_tool("inc")
        assert (result.text, result.notice is None) == ("1", False)
        document = again.native.export()
        copy = store.client.import_session(document, name="copy")
        assert copy.state.get() == {"step": 2}
        assert copy.export()["state"] == document["state"]


@pytest.mark.thorough
def test_a_server_has_its_own_services(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The services belong to the whole server, and the sessions to one space each."""
    with MCPStore.setup_store(url=server.url) as store:
        context, agent = store.for_store(), store.for_agent("team_1")
        assert [each.service for each in agent.list_services()] == ["quick", "other", "own"]
        assert agent.wait_service("quick").status == "available"
        with pytest.raises(NotAllowed):
            agent.add_service({"name": "more", **service("asking")})
        with context.with_session("same") as a, agent.with_session("same") as b:
            assert a.id != b.id
            assert [a.use_tool("quick_inc").text, b.bind_service("quick").use_tool("inc").text] == [
                "1",
                "1",
            ]
            assert b.list_services() == ["quick"]
            assert [each.id for each in context.list_sessions()] == [a.id]
            # That server gives the tools of its other service a prefix of its own.
            assert a.use_tool("other_inc").text == "1"
    monkeypatch.setattr(retry, "START_SECONDS", 0.0)
    with pytest.raises(ServerUnreachable):
        MCPStore.setup_store(url="http://127.0.0.1:9")


@pytest.mark.thorough
async def test_a_store_ends_while_a_loop_runs(leaks: Any) -> None:
    async with MCPStore.setup_store() as store:
        context = store.for_store()
        await context.add_service_async({"name": "counter", **service("quick")})
        session = await context.create_session_async("open")
        assert (await session.use_tool_async("inc")).text == "1"
        assert session.is_active
    assert not session.is_active
    await store.close_async()
    await leaks.check()


@pytest.mark.thorough
def test_the_built_in_browser_is_a_service_of_every_space(headless_shell: str) -> None:
    """It can be added while the store runs, and has tools of the same names as @playwright/mcp."""
    page = "data:text/html,<title>Hello</title>"
    with MCPStore.setup_store() as store:
        for context, browser in (
            (store.for_store(), "browser"),
            (store.for_agent("reader"), {"name": "browser", "executable": headless_shell}),
        ):
            context.add_service(browser)
            assert "browser_take_screenshot" in [tool.name for tool in context.list_tools()]
            with pytest.raises(NameTaken):
                context.add_service({"name": "browser", "command": "true"})
        session = store.for_agent("reader").with_session("reading")
        session.use_tool("browser_navigate", {"url": page})
        assert "Hello" in session.use_tool("browser_snapshot").text
        assert session.list_services() == ["browser"]
