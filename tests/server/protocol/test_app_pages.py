"""Pages of MCP Apps, which hosts read by the address in the tool list, and resources whose changes clients follow."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import JSON, meta_of, opened_session, service, structured
from support.open_gateways import serving_gateway
from support.selection import matrix
from support.waiting import until

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

PAGE = "ui://apps/page.html"
VALUE = "apps://value"


@asynccontextmanager
async def serving(folder: Path, *names: str) -> AsyncGenerator[Gateway]:
    """Serve one upstream per name, each with a page of its own text under the same address."""
    services: JSON = {}
    for name in names:
        page = folder / f"{name}.html"
        page.write_text(f"<p>{name}</p>")
        arguments = ("--page", str(page), "--log", str(folder / f"{name}.log"))
        services[name] = service("apps", *arguments, prefix=f"{name}_", pause="release")
    async with serving_gateway(folder, **services) as gateway:
        yield gateway


@pytest.fixture(params=matrix("auto", "legacy"))
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gateway]:
    """A gateway of two services, which sessions keep apart."""
    async with serving(tmp_path_factory.mktemp("pair"), "one", "two") as gateway:
        yield gateway


async def read(client: Client, uri: str) -> types.TextResourceContents:
    (part,) = (await client.read_resource(uri)).contents
    assert isinstance(part, types.TextResourceContents)
    return part


async def pages(client: Client) -> dict[str, str]:
    """Return the page of each tool that has one, checked to have the scheme that hosts of apps demand."""
    uris: dict[str, str] = {}
    for tool in (await client.list_tools()).tools:
        meta = dict(tool.meta or {})
        if "ui" in meta:
            uris[tool.name] = meta["ui"]["resourceUri"]
            assert meta["ui/resourceUri"] == uris[tool.name]
            assert uris[tool.name].startswith("ui://")
            assert meta["more"] == 1
    return uris


async def test_a_host_reads_the_page_that_a_tool_names_in_the_list(
    pair: Gateway, mode: Any
) -> None:
    async with Client(StateholdServer(pair, version="0"), cache=None, mode=mode) as client:
        assert client.server_capabilities is not None
        # Their older era has a place for it, too.
        assert client.server_capabilities.extensions is not None
        before = structured(await client.call_tool("session_list", {}))["sessions"]
        listed = await pages(client)
        assert list(listed) == ["one_show", "two_show"]
        part = await read(client, listed["one_show"])
        assert (part.text, str(part.uri)) == ("<p>one</p>", listed["one_show"])
        # The tool list belongs to no session, and reading a page of it needs none.
        assert structured(await client.call_tool("session_list", {}))["sessions"] == before
    mcp_server = StateholdServer(pair, version="0", pinned_name="an app")
    async with Client(mcp_server, cache=None, mode=mode) as client:
        assert await pages(client) == listed
        assert (await read(client, listed["one_show"])).text == "<p>one</p>"


async def test_pages_of_two_services_with_one_address_are_distinguished(
    pair: Gateway, mode: Any
) -> None:
    async with Client(StateholdServer(pair, version="0"), cache=None, mode=mode) as client:
        for name, uri in (await pages(client)).items():
            assert (await read(client, uri)).text == f"<p>{name.removesuffix('_show')}</p>"


async def test_a_page_in_a_result_is_read_in_its_session(pair: Gateway, mode: Any) -> None:
    async with Client(StateholdServer(pair, version="0"), cache=None, mode=mode) as client:
        session = await opened_session(client)
        result = await client.call_tool("two_show", {"session_id": session})
        uri = meta_of(result)["ui"]["resourceUri"]
        block = result.content[0]
        assert isinstance(block, types.EmbeddedResource)
        assert str(block.resource.uri) == uri == f"ui://{session}/two/ui%3A%2F%2Fapps%2Fpage.html"
        part = await read(client, uri)
        assert (part.text, str(part.uri)) == ("<p>two</p>", uri)
        assert (await read(client, uri.replace("ui://", "session://"))).text == "<p>two</p>"


async def test_no_other_resource_is_read_without_a_session(pair: Gateway) -> None:
    async with Client(StateholdServer(pair, version="0"), cache=None) as client:
        for uri in (PAGE, "ui://one/ui%3A%2F%2Fother", "ui://one/apps%3A%2F%2Fvalue", "ui://no/x"):
            with pytest.raises(MCPError, match="Unknown resource") as error_info:
                await client.read_resource(uri)
            assert error_info.value.error.data == {"uri": uri}


async def test_the_only_service_of_a_pinned_session_keeps_its_addresses(
    tmp_path: Path, mode: Any
) -> None:
    async with serving(tmp_path, "one") as gateway:
        async with Client(
            StateholdServer(gateway, version="0", pinned_name="p"), cache=None, mode=mode
        ) as client:
            assert await pages(client) == {"one_show": PAGE}
            assert (await read(client, PAGE)).text == "<p>one</p>"
            result = await client.call_tool("one_show", {})
            assert meta_of(result)["ui"]["resourceUri"] == PAGE
        async with Client(StateholdServer(gateway, version="0"), cache=None, mode=mode) as client:
            listed = await pages(client)
            assert (await read(client, listed["one_show"])).text == "<p>one</p>"


@pytest.mark.thorough
async def test_a_page_is_read_again_when_the_service_announces_a_change(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "one") as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        uri = (await pages(client))["one_show"]
        assert (await read(client, uri)).text == "<p>one</p>"
        (tmp_path / "one.html").write_text("<p>new</p>")
        assert (await read(client, uri)).text == "<p>one</p>"
        session = await opened_session(client)
        # The service sends the notification before it answers the call.
        await client.call_tool("one_add", {"session_id": session, "uri": "apps://more"})
        assert (await read(client, uri)).text == "<p>new</p>"


# Following resources.


class ResourceNotifications:
    """The resource notifications of a client, in either era."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[str](100)
        self._listens = False
        """Whether changes come from a stream, which the message handler sees too."""

    async def handle(self, message: Any) -> None:
        if self._listens:
            return
        if isinstance(message, types.ResourceUpdatedNotification):
            self._send.send_nowait(str(message.params.uri))
        elif isinstance(message, types.ResourceListChangedNotification):
            self._send.send_nowait("")

    async def next(self) -> str:
        """Wait for the next change: the URI of a resource, empty for the list."""
        with anyio.fail_after(20):
            return await self._receive.receive()

    @asynccontextmanager
    async def following(self, client: Client, mode: str, uri: str) -> AsyncGenerator[None]:
        """Follow the list of resources and one of them."""
        if mode == "legacy":
            await client.list_resources()
            await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
            yield
            return
        async with (
            client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as changes,
            anyio.create_task_group() as tasks,
        ):

            async def listen() -> None:
                async for change in changes:
                    self._send.send_nowait(str(getattr(change, "uri", "")))

            self._listens = True
            tasks.start_soon(listen)
            yield
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


@pytest.fixture
async def heard() -> AsyncGenerator[ResourceNotifications]:
    notifications = ResourceNotifications()
    yield notifications
    notifications.close()


def subscribers(folder: Path) -> list[int]:
    """Return the process of each subscription that the upstream was asked for."""
    log = folder / "one.log"
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    return [line["pid"] for line in lines if line["tool"] == "resources/subscribe"]


@pytest.mark.parametrize("reconnect", matrix("session_restart", "session_pause"))
async def test_changes_of_resources_reach_subscribers_over_a_new_connection_too(
    tmp_path: Path, mode: Any, heard: ResourceNotifications, reconnect: str
) -> None:
    async with serving(tmp_path, "one") as gateway:
        mcp_server = StateholdServer(gateway, version="0", pinned_name="p")
        async with (
            Client(mcp_server, cache=None, mode=mode, message_handler=heard.handle) as client,
            Client(StateholdServer(gateway, version="0"), cache=None) as owner,
            heard.following(client, mode, VALUE),
        ):
            await client.call_tool("one_write", {"value": "1"})
            assert await heard.next() == VALUE
            assert (await read(client, VALUE)).text == "1"
            await client.call_tool("one_add", {"uri": "apps://more"})
            assert await heard.next() == ""
            assert "apps://more" in {str(r.uri) for r in (await client.list_resources()).resources}
            structured(await owner.call_tool(reconnect, {"session_id": "p"}))
            if reconnect == "session_pause":
                structured(await owner.call_tool("session_resume", {"session_id": "p"}))
                await client.call_tool("one_get", {})
            await until(lambda: len(subscribers(tmp_path)) == 2)
            first, second = subscribers(tmp_path)
            assert first != second
            await client.call_tool("one_write", {"value": "2"})
            assert await heard.next() == VALUE
            assert (await read(client, VALUE)).text == "2"
            await client.call_tool("one_add", {"uri": "apps://other"})
            assert await heard.next() == ""


async def test_with_several_services_a_change_has_the_address_in_the_session(
    pair: Gateway, mode: Any, heard: ResourceNotifications
) -> None:
    async with Client(
        StateholdServer(pair, version="0"), cache=None, mode=mode, message_handler=heard.handle
    ) as client:
        session = await opened_session(client)
        uri = f"session://{session}/two/apps%3A%2F%2Fvalue"
        async with heard.following(client, mode, uri):
            await client.call_tool("two_write", {"session_id": session, "value": "1"})
            assert await heard.next() == uri
            assert (await read(client, uri)).text == "1"
