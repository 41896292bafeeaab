"""Subscriptions to the resources of a session of another process."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import quote

import mcp_types as types
import pytest
from support.gateway_process import JSON, Way, opened_session, service, serving
from support.pairs import Pair
from support.subscribers import subscribed

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

VALUE = "apps://value"


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"apps": service("apps"), "quick": service("quick", prefix="quick_")}}


async def test_a_client_of_another_process_is_notified_of_changes(pair: Pair) -> None:
    address = f"session://{pair.session}/apps/{quote(VALUE, safe='')}"
    async with subscribed(pair.edge, address) as (client, next_uri):
        for value in ("1", "2"):
            await pair.client.call_tool("write", {**pair.at, "value": value})
            assert await next_uri() == address
            (part,) = (await client.read_resource(address)).contents
            assert isinstance(part, types.TextResourceContents)
            assert part.text == value


@pytest.mark.thorough
async def test_two_clients_share_a_subscription_and_it_outlives_one(pair: Pair) -> None:
    address = f"session://{pair.session}/apps/{quote(VALUE, safe='')}"
    async with subscribed(pair.edge, address) as (_, next_uri):
        async with subscribed(pair.edge, address) as (_, other_next):
            await pair.client.call_tool("write", {**pair.at, "value": "1"})
            assert await next_uri() == address
            assert await other_next() == address
        await pair.client.call_tool("write", {**pair.at, "value": "2"})
        assert await next_uri() == address


@pytest.mark.thorough
async def test_a_client_is_notified_of_a_changed_state(pair: Pair) -> None:
    address = f"session://{pair.session}/state"
    async with subscribed(pair.edge, address) as (_, next_uri):
        await pair.client.call_tool("state_update", {**pair.at, "values": {"a": 1}})
        assert await next_uri() == address


@pytest.mark.thorough
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
