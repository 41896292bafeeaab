"""Calls: access, arguments, operation ids, acknowledgements, and the errors of refused requests."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from support.gateway_process import JSON, Running, serving, toml
from support.selection import matrix
from support.token_file import write_tokens

from statehold.client import Client, connect
from statehold.client.errors import (
    InvalidArgument,
    NotAllowed,
    ServiceNotBound,
    SessionClosed,
)
from statehold.client.protocol import calls

TOKEN = "T0ken-of-the-tests-0123456789abcdef"


@pytest.fixture(scope="module")
def guarded(settings: JSON, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server that wants a token, the session as a header too, and keeps few results of operations."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    write_tokens(tokens, f"{TOKEN} alice\n")
    config = folder / "statehold.toml"
    server = {"tokens": str(tokens), "session_header": True}
    config.write_text(toml({**settings, "server": server, "history": {"receipts": 25}}))
    with serving(config, folder / "data") as running:
        yield running


async def test_a_token_opens_the_door_and_headers_follow_arguments(guarded: Running) -> None:
    for wrong in (None, "wrong"):
        with pytest.raises(NotAllowed):
            async with connect(guarded.url, token=wrong):
                pass
    async with (
        connect(f"{guarded.url}/mcp/", token=TOKEN) as client,
        client.session(services=["quick"]) as s,
    ):
        assert [(await s.call("inc")).text for _ in range(2)] == ["1", "2"]


async def test_calls_without_end_fit_into_one_session(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_ACKNOWLEDGEMENTS", 20)
    async with connect(guarded.url, token=TOKEN) as client, client.session(services=["quick"]) as s:
        first = await s.call_tool("inc", operation_id="mine")
        for _ in range(40):
            await s.call("inc")
        # The result of an operation id that the caller chose is kept, because the client does not know when it is over.
        assert (await s.call_tool("inc", operation_id="mine")).text == first.text == "1"
        assert (await s.call("inc")).text == "42"


async def test_an_id_of_the_callers_own_is_kept_with_the_session_for_our_tools_too(
    guarded: Running,
) -> None:
    async with connect(guarded.url, token=TOKEN) as client, client.session(services=["quick"]) as s:
        await s.state.update({"log": []})
        arguments = {"values": "e", "path": "/log/-"}
        first = await s.call_tool("state_update", arguments, operation_id="mine")
        async with connect(guarded.url, token=TOKEN) as another:
            repeated = await another.call_tool(
                "state_update", {**arguments, "session_id": s.id}, operation_id="mine"
            )
        assert repeated.structured_content == first.structured_content
        assert (await s.state.get()) == {"log": ["e"]}


@pytest.mark.parametrize("value", matrix(float("nan"), "\ud800", float("inf"), object(), quick=2))
async def test_a_value_that_is_not_json_is_refused_over_every_connection(
    client: Client, value: object
) -> None:
    async with client.session(services=["quick"]) as s:
        await s.state.update({"price": 3.5})
        with anyio.fail_after(20), pytest.raises(InvalidArgument):
            await s.state.update({"price": value})
        with anyio.fail_after(20), pytest.raises(InvalidArgument):
            await s.call("echo", price=[{"deep": value}])
        assert await s.state.get() == {"price": 3.5}
        assert (await s.call("inc")).text == "1"


async def test_reading_and_calling_raise_the_same_classes_of_errors(
    client: Client,
) -> None:
    async with client.session(services=["quick"]) as s:
        with pytest.raises(ServiceNotBound) as caught:
            await s.read_resource("memory://x", service="other")
        assert caught.value.recovery not in caught.value.message
        await s.close()
        with pytest.raises(SessionClosed):
            await s.read_resource("memory://x", service="quick")


@pytest.mark.thorough
async def test_a_toolset_that_is_not_served_is_named(
    config_file: Path, tmp_path: Path, settings: JSON
) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text(toml({**settings, "toolsets": ["core", "lifecycle"]}))
    async with connect(config=plain) as client, client.session() as s:
        for method in (s.export, s.delete, client.stats):
            with pytest.raises(NotAllowed, match="does not offer") as caught:
                await method()
            assert "admin" in caught.value.recovery
        assert s.is_open
