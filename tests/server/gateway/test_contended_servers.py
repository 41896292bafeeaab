"""A server that kills whatever holds its port makes two sessions restart each other; both are paused and told why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mcp import Client
from support.gateway_process import JSON, meta_of, opened_session, service, structured, toml
from support.waiting import until

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server reads /proc")


async def test_two_sessions_that_kill_each_others_server_are_paused_and_told_the_remedy(
    tmp_path: Path,
) -> None:
    config = tmp_path / "statehold.toml"
    holder = service("bad", "kills-holder", str(tmp_path / "holder"))
    config.write_text(toml({"services": {"holder": holder}}))
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with (
        open_gateway(loaded, address="test") as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        await gateway.probes.ready()
        sessions = [await opened_session(client) for _ in range(2)]
        for session in sessions:
            await client.call_tool("inc", {"session_id": session})

        async def info(session: str) -> JSON:
            return structured(await client.call_tool("session_info", {"session_id": session}))

        async def are_paused() -> bool:
            return {(await info(session))["status"] for session in sessions} == {"paused"}

        await until(are_paused, within=60)
        for session in sessions:
            assert 'scope = "shared"' in (await info(session))["services"][0]["last_error"]
        result = await client.call_tool("inc", {"session_id": sessions[0]})
        assert structured(result)["count"] == 1
        assert 'scope = "shared"' in meta_of(result)["statehold/notice"]
