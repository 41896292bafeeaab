"""Subscriptions to the resources of a session of another process."""

from __future__ import annotations

import math
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import mcp_types as types
import pytest
from gateway_process import JSON, Way, opened_session, service, serving
from mcp import Client
from pairs import Pair

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

VALUE = "apps://value"


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"apps": service("apps"), "quick": service("quick", prefix="quick_")}}


Next = Callable[[], Any]


@asynccontextmanager
async def subscribed(way: Way, uri: str) -> AsyncGenerator[tuple[Client, Next]]:
    """A client that is subscribed to a resource, and a function that waits for its next notification."""
    send, receive = anyio.create_memory_object_stream[str](math.inf)

    async def handle(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and not way.modern:
            send.send_nowait(str(message.params.uri))

    async def next_uri() -> str:
        with anyio.fail_after(20):
            return await receive.receive()

    with send, receive:
        async with way.connect(message_handler=handle) as client:
            if not way.modern:
                await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
                yield client, next_uri
                return
            async with (
                client.listen(resource_subscriptions=[uri]) as changes,
                anyio.create_task_group() as tasks,
            ):

                async def listen() -> None:
                    async for change in changes:
                        send.send_nowait(str(getattr(change, "uri", "")))

                tasks.start_soon(listen)
                yield client, next_uri
                tasks.cancel_scope.cancel()


async def test_a_client_of_another_process_is_notified_of_changes(pair: Pair) -> None:
    address = f"session://{pair.session}/apps/{quote(VALUE, safe='')}"
    async with subscribed(pair.edge, address) as (client, next_uri):
        for value in ("1", "2"):
            await pair.client.call_tool("write", {**pair.at, "value": value})
            assert await next_uri() == address
            (part,) = (await client.read_resource(address)).contents
            assert isinstance(part, types.TextResourceContents)
            assert part.text == value


async def test_two_clients_share_a_subscription_and_it_outlives_one(pair: Pair) -> None:
    address = f"session://{pair.session}/apps/{quote(VALUE, safe='')}"
    async with subscribed(pair.edge, address) as (_, next_uri):
        async with subscribed(pair.edge, address) as (_, other_next):
            await pair.client.call_tool("write", {**pair.at, "value": "1"})
            assert await next_uri() == address
            assert await other_next() == address
        await pair.client.call_tool("write", {**pair.at, "value": "2"})
        assert await next_uri() == address


async def test_a_client_is_notified_of_a_changed_state(pair: Pair) -> None:
    address = f"session://{pair.session}/state"
    async with subscribed(pair.edge, address) as (_, next_uri):
        await pair.client.call_tool("state_update", {**pair.at, "values": {"a": 1}})
        assert await next_uri() == address


async def test_a_client_is_notified_when_the_owner_gives_the_session_up(
    edge: Way, config_file: Path, data: Path
) -> None:
    with serving(config_file, data) as owner:
        way = Way("http", "modern", config_file, data, url=owner.url)
        async with way.connect() as client:
            session = await opened_session(client)
            await client.call_tool("write", {"session_id": session, "value": "1"})
        address = f"session://{session}/apps/{quote(VALUE, safe='')}"
        async with subscribed(edge, address) as (_, next_uri):
            owner.process.send_signal(signal.SIGTERM)
            assert await next_uri() == address
