"""The console of a node that does not own the session: the owner answers, on this machine and on another one."""

from __future__ import annotations

from pathlib import Path

from support.console_client import operator
from support.gateway_process import Running, code_of
from support.pairs import Pair


async def test_the_owner_of_a_session_runs_what_the_console_of_another_node_asks(
    pair: Pair, other: Running, edge_data: Path
) -> None:
    await pair.client.call_tool("echo", {**pair.at, "text": "hello"})
    async with operator(edge_data, other.url) as person:
        shown = await person.get(f"/sessions/{pair.session}")
        assert shown["status"] == "idle"
        assert shown["processes"][0]["pid"] > 1
        listed = (await person.get("/sessions?limit=200"))["sessions"]
        assert pair.session in [each["session_id"] for each in listed]
        epoch = (await person.act(pair.session, "take"))["epoch"]
        refused = await pair.client.call_tool("echo", {**pair.at, "text": "hello"})
        assert code_of(refused) == "human_in_control"
        await person.act(pair.session, "renew", epoch=epoch)
        await person.act(pair.session, "give-back", epoch=epoch, reply="done there")
        answer = await pair.client.call_tool("echo", {**pair.at, "text": "hello"})
        assert "done there" in str(answer.content)
        path = f"/sessions/{pair.session}/actions/renew"
        error = await person.refused("POST", path, {"epoch": epoch})
        assert (error["status"], error["code"]) == (409, "control_refused")
        assert (await person.act(pair.session, "close"))["status"] == "closed"
