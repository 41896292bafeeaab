"""The method of a vendor in a session that another process owns, and skills, which any process answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.gateway_process import JSON, Way, service
from support.pairs import Pair
from support.raw_requests import send


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"one": service("skilled", "--text", "one")}}


@pytest.mark.thorough
async def test_a_method_runs_where_its_session_is(pair: Pair) -> None:
    name = pair.session.replace("_", "-")
    await pair.client.call_tool("session_rename", {**pair.at, "name": name})
    owner = Way("http", "modern", pair.edge.config, pair.edge.data, url=pair.owner.url)
    counts: list[int] = []
    for way in (replace(pair.edge, options=["--session", name]), owner):
        async with way.connect(f"/s/{name}/mcp") as client:
            counts += [(await send(client, "example/count"))["count"] for _ in range(2)]
    assert counts == [1, 2, 3, 4]
    async with pair.edge.connect() as client:
        skills = (await send(client, "skills/list"))["skills"]
        assert "skill://one/refunds/SKILL.md" in [skill["uri"] for skill in skills]
