"""One broken prompt, resource or service hides no others."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from support.gateway_process import JSON, Way, opened_session, service

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.errors import StoreUnavailable


@pytest.fixture(scope="module")
def exit_flag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flag") / "exit"


@pytest.fixture(scope="module")
def settings(exit_flag: Path) -> JSON:
    return {
        "services": {
            "asking": service("asking"),
            "broken": service("bad", "invalid-lists", str(exit_flag), prefix="broken_"),
        }
    }


async def listed(way: Way, session: str) -> list[str]:
    async with way.connect(f"/s/{session}/mcp") as client:
        resources = (await client.list_resources()).resources
        # A session's own, its state, is always there.
        return [resource.name for resource in resources if resource.name != "state"]


async def test_a_broken_prompt_is_left_out(http: Way) -> None:
    async with http.connect() as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
    assert names == ["report", "quiz", "broken_one", "broken_two"]


async def test_a_prompts_own_session_id_stays_its_own(http: Way) -> None:
    async with http.connect() as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        names = [argument.name for argument in prompts["broken_two"].arguments or []]
        assert names == ["statehold_session_id", "session_id"]
        with pytest.raises(MCPError, match="statehold_session_id is missing"):
            await client.get_prompt("broken_two", {"session_id": "theirs"})
        session = await opened_session(client)
        arguments = {"statehold_session_id": session, "session_id": "theirs"}
        prompt_result = await client.get_prompt("broken_two", arguments)
    assert prompt_result.description == "theirs"


async def test_a_broken_resource_is_left_out(http: Way) -> None:
    assert await listed(http, f"both {http.era}") == ["value", "a"]


async def test_a_service_that_a_session_does_not_use_is_left_out(http: Way) -> None:
    async with http.connect() as client:
        one = await opened_session(client, services=["broken"])
        two = await opened_session(client, services=["asking"])
    assert await listed(http, one) == ["a"]
    assert await listed(http, two) == ["value"]


async def test_a_service_that_does_not_start_is_left_out(http: Way, exit_flag: Path) -> None:
    async with http.connect() as client:
        session = await opened_session(client)
        # Probed by now, so that its resources are known of.
        await client.list_prompts()
        flag = anyio.Path(exit_flag)
        await flag.touch()
        try:
            assert await listed(http, session) == ["value"]
        finally:
            await flag.unlink()


async def test_an_unknown_session_is_an_error(http: Way) -> None:
    async with http.connect("/s/sh_aaaaaaaaaaaaaaaaaaaaaaaaaa/mcp") as client:
        with pytest.raises(MCPError, match="session_not_found"):
            await client.list_resources()


async def test_a_failing_store_is_an_error(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> str:
        raise StoreUnavailable("The disk is full.")

    mcp_server = StateholdServer(gateway, version="0", pinned_name="mine")
    async with Client(mcp_server, cache=None) as client:
        monkeypatch.setattr(gateway.pinned_sessions, "id_of", refuse)
        with pytest.raises(MCPError, match="service_unavailable"):
            await client.list_resources()
