"""The state of a session as a resource, and the clients that are notified of its changes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    JSON,
    Way,
    code_of,
    opened_session,
    service,
    structured,
    toml,
)
from support.selection import matrix
from support.waiting import until

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.transitions.create import CreationOptions

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

OTHER = Principal(subject="somebody else")


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {"services": {"quick": service("quick")}}


def address(session: str) -> str:
    return f"session://{session}/state"


async def read(client: Client, uri: str) -> types.TextResourceContents:
    (part,) = (await client.read_resource(uri)).contents
    assert isinstance(part, types.TextResourceContents)
    return part


async def update(client: Client, session: str, **values: Any) -> int:
    arguments = {"session_id": session, "values": values}
    return structured(await client.call_tool("state_update", arguments))["version"]


# Reading.


async def test_the_resource_holds_what_the_tool_returns(client: Client, way: Way) -> None:
    state = {"int": 2**63 - 1, "large": 2**80, "whole": 1.0, "text": "漢字 \U0001f600", "no": None}
    name = f"read {way.transport} {way.era}"
    session = await opened_session(client, name=name, state=state)
    templates = (await client.list_resource_templates()).resource_templates
    assert templates[0].uri_template == "session://{session_id}/state"
    assert templates[0].mime_type == "application/json"
    for ref in (session, name.replace(" ", "%20")):
        part = await read(client, address(ref))
        assert (str(part.uri), part.mime_type) == (address(session), "application/json")
        content = structured(await client.call_tool("state_get", {"session_id": session}))
        assert json.loads(part.text) == content["value"] == state
        assert isinstance(json.loads(part.text)["whole"], float)
        assert part.meta == {"statehold/state": {"version": 0}}


async def test_the_state_of_a_closed_session_is_read_and_one_that_is_not_there_is_an_error(
    client: Client,
) -> None:
    session = await opened_session(client)
    await client.call_tool("session_close", {"session_id": session})
    assert (await read(client, address(session))).text == "{}"
    for uri, words in (
        (address("sh_" + "a" * 26), "session_not_found"),
        (address(session) + "/", "session://ID"),
        ("session:///state", "session://ID"),
    ):
        with pytest.raises(MCPError, match=words) as error_info:
            await client.read_resource(uri)
        assert error_info.value.error.code == types.INVALID_PARAMS


async def test_a_pinned_session_lists_its_own_state_only(
    http: Way,
) -> None:
    async with http.connect(f"/s/state {http.era}/mcp") as client, http.connect() as other:
        (listed,) = (await client.list_resources()).resources
        assert (listed.name, listed.mime_type) == ("state", "application/json")
        await client.call_tool("state_update", {"values": {"n": 1}})
        assert json.loads((await read(client, str(listed.uri))).text) == {"n": 1}
        foreign = await opened_session(other)
        with pytest.raises(MCPError, match="session_not_found"):
            await read(client, address(foreign))
        # Without a pinned session, the list does not depend on the open sessions.
        assert (await other.list_resources()).resources == []


# Following.


class StateNotifications:
    """The state notifications of a client, in either era."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._update_event = anyio.Event()

    def add(self, uri: str) -> None:
        self.uris.append(uri)
        self._update_event.set()

    async def handle(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.add(str(message.params.uri))

    async def wait(self) -> None:
        with anyio.fail_after(15):
            await self._update_event.wait()
        self._update_event = anyio.Event()


@asynccontextmanager
async def following(
    client: Client, notifications: StateNotifications, modern: bool, *uris: str
) -> AsyncGenerator[None]:
    """Follow states in the way of the era."""
    if not modern:
        for uri in uris:
            await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        yield
        for uri in uris:
            await client.unsubscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        return
    async with (
        client.listen(resource_subscriptions=uris) as changes,
        anyio.create_task_group() as tasks,
    ):
        assert list(changes.honored.resource_subscriptions or ()) == list(uris)

        async def listen() -> None:
            async for change in changes:
                notifications.add(str(getattr(change, "uri", None)))

        tasks.start_soon(listen)
        yield
        tasks.cancel_scope.cancel()


async def test_a_subscriber_of_a_state_is_notified_of_each_change(way: Way) -> None:
    notifications = StateNotifications()
    async with AsyncExitStack() as stack:
        handler: Any = None if way.modern else notifications.handle
        client = await stack.enter_async_context(way.connect(message_handler=handler))
        assert client.server_capabilities is not None
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.subscribe
        assert not client.server_capabilities.resources.list_changed
        session, other = await opened_session(client), await opened_session(client)
        async with following(client, notifications, way.modern, address(session)):
            await update(client, other, n=1)
            await update(client, session, n=1)
            await notifications.wait()
            assert json.loads((await read(client, address(session))).text) == {"n": 1}
            await update(client, session, n=2)
            await notifications.wait()
        assert set(notifications.uris) == {address(session)}


async def test_a_client_cannot_subscribe_to_the_state_of_another_principal(
    memory: Way, gateway: Gateway
) -> None:
    async with memory.connect() as client:
        mine = await opened_session(client, name=f"mine {memory.era}")
        foreign = (await gateway.registry.create(OTHER, CreationOptions())).id
        wrong = [address(foreign), address(f"mine%20{memory.era}"), f"session://{mine}/quick/x"]
        if memory.modern:
            async with client.listen(resource_subscriptions=[*wrong, address(mine)]) as changes:
                honored = changes.honored.resource_subscriptions
            assert list(honored or ()) == [address(mine)]
            return
        for uri in wrong:
            with pytest.raises(MCPError) as error_info:
                await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
            assert error_info.value.error.code == types.INVALID_PARAMS


async def test_a_subscription_ends_with_its_connection(
    memory: Way, mcp_server: StateholdServer
) -> None:
    before = len(mcp_server.state_subscriptions)
    async with memory.connect() as client:
        session = await opened_session(client)
        for _ in range(2):
            async with following(client, StateNotifications(), memory.modern, address(session)):
                assert len(mcp_server.state_subscriptions) == before + 1
        assert len(mcp_server.state_subscriptions) in (before, before + 1)
        if not memory.modern:
            await client.subscribe_resource(address(session))  # pyright: ignore[reportDeprecated]
    await until(lambda: len(mcp_server.state_subscriptions) <= before)


@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_many_changes_give_few_notifications_and_those_of_another_process_one(
    tmp_path: Path, era: str
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("quick")}}))
    notifications, modern = StateNotifications(), era == "modern"
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with (
        open_gateway(loaded, address="here") as here,
        open_gateway(loaded, address="there") as there,
        Client(
            StateholdServer(here, version="0"),
            cache=None,
            mode="auto" if modern else "legacy",
            message_handler=notifications.handle,
        ) as client,
    ):
        session = await opened_session(client)
        async with following(client, notifications, modern, address(session)):
            async with anyio.create_task_group() as tasks:
                for number in range(300):
                    tasks.start_soon(lambda n=number: update(client, session, **{f"k{n}": n}))
            await notifications.wait()
            await client.call_tool("session_pause", {"session_id": session})
            before = len(notifications.uris)
            assert before < 100
            with anyio.fail_after(15):
                await there.registry.states.update(LOCAL, session, {"there": True})
                while True:
                    await notifications.wait()
                    value = json.loads((await read(client, address(session))).text)
                    if value.get("there"):
                        break
            assert len(value) == 301


async def test_without_the_toolset_the_state_is_no_resource(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"toolsets": ["core"], "services": {"quick": service("quick")}}))
    loaded = load(config=config, services=None, flags={"data": str(tmp_path / "data")})
    async with open_gateway(loaded, address="here") as gateway:
        mcp_server = StateholdServer(gateway, version="0")
        for mode in ("auto", "legacy"):
            async with Client(mcp_server, cache=None, mode=mode) as client:
                session = await opened_session(client)
                assert (await client.list_resource_templates()).resource_templates == []
                assert client.server_capabilities is not None
                assert client.server_capabilities.resources is not None
                assert not client.server_capabilities.resources.subscribe
                with pytest.raises(MCPError):
                    await client.read_resource(address(session))
                result = await client.call_tool("session_info", {"session_id": session})
                assert not result.is_error
                with pytest.raises(MCPError, match="Unknown tool"):
                    code_of(await client.call_tool("state_get", {"session_id": session}))
