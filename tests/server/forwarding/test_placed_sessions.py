"""Sessions that a node passes on to another one, because it takes on none itself."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.databases import PostgreSQL
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    Way,
    code_of,
    count,
    meta_of,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.machines import cluster

pytestmark = pytest.mark.thorough


@dataclass
class Placed:
    """A node that takes on sessions, and one with a capacity of 0."""

    database: PostgreSQL
    url: str
    node: Way
    edge: Way

    def owner_of(self, session: str) -> str | None:
        """Return how the node that owns a session describes itself; None without an owner."""
        query = "SELECT n.address FROM session s JOIN node n ON n.id = s.node WHERE s.id = :id"
        with self.database.connection(self.url) as connection:
            return connection.scalar(text(query), {"id": session})


@contextmanager
def two_nodes(
    database: PostgreSQL, folder: Path, node_settings: JSON, edge_settings: JSON
) -> Generator[Placed]:
    url = database.fresh()
    with ExitStack() as stack:
        ways: list[Way] = []
        for name, settings in (("node", node_settings), ("edge", edge_settings)):
            config = folder / f"{name}.toml"
            services: JSON = {"counter": service("counter", pause="release", sandbox="off")}
            config.write_text(toml({"services": services, **cluster(url, **settings)}))
            running = stack.enter_context(serving(config, folder / name))
            ways.append(Way("http", "modern", config, folder / name, url=running.url))
        yield Placed(database, url, *ways)


@pytest.fixture(scope="module")
def placed(postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Generator[Placed]:
    folder = tmp_path_factory.mktemp("placed")
    with two_nodes(postgresql, folder, {}, {"capacity": 0}) as nodes:
        yield nodes


async def test_a_new_session_is_created_where_there_is_room(placed: Placed) -> None:
    async with placed.edge.connect() as client:
        session = await opened_session(client, name="new")
        assert [await count(client, session) for _ in range(3)] == [1, 2, 3]
        forked = structured(await client.call_tool("session_fork", {"session_id": session}))
        assert await count(client, forked["children"][0]["session_id"]) == 1
    assert str(placed.owner_of(session)).startswith(placed.node.url)
    async with placed.node.connect() as client:
        assert await count(client, session) == 4


async def test_a_session_is_created_once_for_one_operation(placed: Placed) -> None:
    operation: Any = {"statehold/operation_id": "create"}
    sessions: set[str] = set()
    for way in (placed.edge, placed.edge, placed.node):
        async with way.connect() as client:
            created = await client.call_tool("session_create", {}, meta=operation)
            sessions.add(structured(created)["session_id"])
    assert len(sessions) == 1


async def test_a_paused_session_is_resumed_where_there_is_room(placed: Placed) -> None:
    async with placed.edge.connect() as client:
        session = await opened_session(client)
        await count(client, session)
        await client.call_tool("session_pause", {"session_id": session})
        assert placed.owner_of(session) is None
        assert await count(client, session) == 1
    assert str(placed.owner_of(session)).startswith(placed.node.url)


async def test_a_pinned_session_is_created_where_there_is_room(placed: Placed) -> None:
    for expected in (1, 2):
        async with placed.edge.connect("/s/pinned/mcp") as client:
            result = await client.call_tool("inc", meta=ASKS_SESSION)
            assert structured(result)["count"] == expected
    session = meta_of(result)["statehold/session"]["id"]
    assert str(placed.owner_of(session)).startswith(placed.node.url)


async def test_a_session_is_refused_if_no_node_that_takes_on_sessions_can_be_reached(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
    node: JSON = {"advertise": nowhere, "capacity": 100}
    with two_nodes(postgresql, tmp_path, node, {"capacity": 0}) as placed:
        async with placed.edge.connect() as client:
            refused = await client.call_tool("session_create", {})
        assert code_of(refused) == "service_unavailable"
