"""Limits on the time that a call may wait for the answers of its caller."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import JSON, count, opened_session, service, structured, text_of, toml
from support.loop_clock import LoopClock
from support.selection import matrix

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

CALL_SECONDS = 300.0


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[Gateway]:
    """A gateway for this test alone, whose clock is moved on."""
    services: JSON = {
        era: service("asking", "--era", era, prefix=f"{era}_") for era in ("legacy", "modern")
    }
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"timeouts": {"call": CALL_SECONDS}, "services": services}))
    flags = {"data": str(tmp_path / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as opened:
        await opened.probes.ready()
        yield opened


class Person:
    """A user who answers once `answering` is set."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.answering = anyio.Event()

    async def elicit(self, context: object, params: Any) -> types.ElicitResult:
        self.asked.set()
        await self.answering.wait()
        return types.ElicitResult(action="accept", content={"answer": "late"})


@pytest.mark.parametrize(
    ("mode", "era", "seconds"),
    matrix(
        ("auto", "legacy", CALL_SECONDS + 100),
        ("legacy", "modern", 700.0),
        ("auto", "legacy", 700.0),
        ("legacy", "modern", CALL_SECONDS + 100),
        ("legacy", "legacy", CALL_SECONDS + 100),
        ("legacy", "legacy", 700.0),
        quick=2,
    ),
)
async def test_a_person_may_think_longer_than_a_call_may_take_but_not_forever(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, mode: str, era: str, seconds: float
) -> None:
    person = Person()
    mcp_server = StateholdServer(gateway, version="0")
    results: list[types.CallToolResult | MCPError] = []
    async with Client(
        mcp_server, cache=None, mode=mode, elicitation_callback=person.elicit
    ) as client:
        session = await opened_session(client)
        assert await count(client, session, f"{era}_inc") == 1
        loop_clock = LoopClock(monkeypatch)

        async def ask() -> None:
            try:
                results.append(await client.call_tool(f"{era}_ask", {"session_id": session}))
            except MCPError as error:
                results.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await person.asked.wait()
            await loop_clock.by(seconds)
            person.answering.set()
        [result] = results
        if seconds < 600:
            assert isinstance(result, types.CallToolResult)
            assert json.loads(text_of(result))["content"] == {"answer": "late"}
        elif mode == "auto":
            assert isinstance(result, MCPError)
            assert result.error.code == types.INVALID_PARAMS
            assert "has ended" in result.error.message
        else:
            assert isinstance(result, types.CallToolResult)
            assert "did not answer" in text_of(result)
        assert await count(client, session, f"{era}_inc") == 2
        info = structured(await client.call_tool("session_info", {"session_id": session}))
        assert (info["status"], info["in_flight"]) == ("idle", 0)
        assert len(mcp_server.open_calls) == 0
    monkeypatch.undo()
