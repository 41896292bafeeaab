"""Two configurations over one data folder, each with a namespace of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp import Client, MCPError
from support.gateway_process import Era, code_of, opened_session, service, structured, toml
from support.selection import matrix

from statehold.server.cluster.owner import Owner
from statehold.server.config.load import load
from statehold.server.process.gateway import create_gateway, hold_open
from statehold.server.protocol.server import StateholdServer

Pair = tuple[Client, Client]


@pytest.fixture(params=matrix("modern", "legacy"))
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Pair]:
    """A client of each of two namespaces, of the same principal."""
    era: Era = request.param
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for namespace in ("one", "two"):
            config = tmp_path / f"{namespace}.toml"
            toolsets = ["core", "lifecycle", "state", "history", "branch", "admin"]
            services = {"quick": service("quick")}
            settings = {"namespace": namespace, "toolsets": toolsets, "services": services}
            config.write_text(toml(settings))
            flags = {"data": str(tmp_path / "data")}
            loaded = load(config=config, services=None, flags=flags)
            gateway = await create_gateway(loaded, address=namespace)
            mcp_server = StateholdServer(gateway, version="0")
            owner = Owner(gateway.registry, mcp_server.forwarded_requests)
            await stack.enter_async_context(hold_open(gateway, owner))
            mode = "auto" if era == "modern" else "legacy"
            client = Client(mcp_server, cache=None, mode=mode)
            clients.append(await stack.enter_async_context(client))
        yield clients[0], clients[1]


async def test_a_list_of_one_namespace_has_no_session_of_another(pair: Pair) -> None:
    opened = [await opened_session(client, name="same", user_id="ann") for client in pair]
    for client in pair:
        for namespace, session in zip(("one", "two"), opened, strict=True):
            for more in ({}, {"name": "sa"}, {"user_id": "ann"}, {"query": "same"}):
                wanted = {"namespace": namespace, **more}
                sessions = structured(await client.call_tool("session_list", wanted))["sessions"]
                assert [one["session_id"] for one in sessions] == [session], wanted


async def test_a_name_leads_to_the_session_of_its_own_namespace(pair: Pair) -> None:
    here, there = pair
    session = await opened_session(here, name="only here", state={"n": 1})
    reads = ("session_info", "state_get", "session_history", "session_export")
    writes = ("session_pause", "session_close", "session_delete")
    for tool in (*reads, *writes, "inc"):
        refused = await there.call_tool(tool, {"session_id": "only here"})
        assert code_of(refused) == "session_not_found", tool
    with pytest.raises(MCPError, match="session_not_found"):
        await there.read_resource("session://only%20here/state")
    other = await opened_session(there, name="only here", state={"n": 2})
    assert other != session
    for client, n in ((here, 1), (there, 2)):
        content = structured(await client.call_tool("state_get", {"session_id": "only here"}))
        assert content["value"] == {"n": n}
