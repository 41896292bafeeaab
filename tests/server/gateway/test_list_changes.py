"""Tool lists that change while Statehold runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.fork_server import ForkServer
from support.gateway_process import (
    ASKS_SERVICE,
    JSON,
    UPSTREAMS,
    Running,
    Way,
    count,
    opened_session,
    service,
    structured,
    text_of,
    toml,
)
from support.selection import matrix, matrix_of

from statehold.server.config.load import load
from statehold.server.gateway import list_changes, list_updates
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

EACH = [("http", "modern"), ("sse", "legacy"), ("stdio", "modern")]
WAYS = matrix_of(EACH)
NOTIFICATIONS = {
    "tools": types.ToolListChangedNotification,
    "prompts": types.PromptListChangedNotification,
}


# Announces a change of its tools when it is called, and never lists them again.
SILENT = """
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
is_silent = False
for line in sys.stdin:
    request = json.loads(line)
    method, result = request["method"], {}
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"],
                  "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "silent", "version": "1"}}
    elif method == "tools/list":
        if is_silent:
            continue
        result = {"tools": [{"name": "change", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        is_silent = True
        send({"method": "notifications/tools/list_changed"})
        result = {"content": []}
    if "id" in request:
        send({"id": request["id"], "result": result})
"""


# Announces its lists whenever it starts, and has its second tool only after it was asked once.
EAGER = """
import json, os, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
tools = ["first"]
for line in sys.stdin:
    request = json.loads(line)
    method, result = request["method"], {}
    if method == "initialize":
        changes = {"listChanged": True}
        result = {"protocolVersion": request["params"]["protocolVersion"], "serverInfo": {"name": "eager", "version": "1"},
                  "capabilities": {"tools": changes, "prompts": changes, "resources": changes}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    elif method.endswith("/list"):
        result = {method[:-5]: []}
    if "id" in request:
        send({"id": request["id"], "result": result})
    if method in ("notifications/initialized", "tools/list"):
        tools = ["first", "second"][:len(tools) + (method == "tools/list")]
        for what in ("tools", "prompts", "resources"):
            send({"method": f"notifications/{what}/list_changed"})
"""


class ListChangeCounter:
    """Counts the notifications of changed lists that a client gets, in either era."""

    def __init__(self, what: str = "tools") -> None:
        self.times = 0
        self._what = what
        self._change_event = anyio.Event()

    async def handle(self, message: Any) -> None:
        if isinstance(message, NOTIFICATIONS[self._what]):
            self.times += 1
            self._change_event.set()

    async def follow(self, stack: AsyncExitStack, client: Client) -> None:
        """Listen, where the client has to ask for it."""
        wanted: JSON = {f"{self._what}_list_changed": True}
        changes = await stack.enter_async_context(client.listen(**wanted))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)

        async def listen() -> None:
            async for _ in changes:
                self.times += 1
                self._change_event.set()

        tasks.start_soon(listen)

    async def wait(self) -> None:
        with anyio.fail_after(15):
            await self._change_event.wait()
        self._change_event = anyio.Event()


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def test_a_server_that_announces_its_lists_when_it_starts_is_started_once(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    server, config = tmp_path / "eager.py", tmp_path / "statehold.toml"
    server.write_text(EAGER)
    config.write_text(
        toml({"services": {"eager": service(str(server.with_suffix("")), str(starts))}})
    )
    async with Way("stdio", "modern", config, tmp_path / "data").connect() as client:
        for _ in range(3):
            assert {"first", "second"} <= {*await names(client)}
        assert len(starts.read_text().split()) == 1


@pytest.mark.thorough
async def test_clients_are_notified_only_of_real_changes_of_the_list(way: Way) -> None:
    new = f"extra_{way.transport}_{way.era}"
    changes = ListChangeCounter()
    async with AsyncExitStack() as stack:
        handler: Any = None if way.modern else changes.handle
        client = await stack.enter_async_context(way.connect(message_handler=handler))
        if way.modern:
            await changes.follow(stack, client)
        before = await names(client)
        session = await opened_session(client)
        for tool in ("same", "same", "grow", "same"):
            result = await client.call_tool(tool, {"session_id": session, "name": new})
            assert text_of(result).startswith("told")
        await changes.wait()
        assert await names(client) == [*before, new]
        await client.call_tool("same", {"session_id": session})
        await client.call_tool("grow", {"session_id": session, "name": f"{new}_too"})
        await changes.wait()
        assert await names(client) == [*before, new, f"{new}_too"]
        assert changes.times == 2


async def test_an_announced_list_that_is_the_same_reaches_streams_of_its_session_only(
    server: Running,
) -> None:
    own, strange = ListChangeCounter(), ListChangeCounter()
    async with AsyncExitStack() as stack:
        for counter, path in ((own, "/s/announced/mcp"), (strange, "/s/silent/mcp")):
            client = await stack.enter_async_context(Client(server.url + path, cache=None))
            await client.call_tool("inc", {})
            await counter.follow(stack, client)
        client = await stack.enter_async_context(
            Client(server.url + "/s/announced/mcp", cache=None)
        )
        before = await names(client)
        for _ in range(2):
            await client.call_tool("same", {})
            await own.wait()
        assert await names(client) == before
        assert strange.times == 0


@pytest.fixture
async def started(tmp_path: Path) -> Any:
    """`async with started(settings) as gateway`: a gateway in this process."""

    def start(settings: JSON) -> Any:
        config = tmp_path / "statehold.toml"
        config.write_text(toml(settings))
        flags = {"data": str(tmp_path / "data")}
        return open_gateway(load(config=config, services=None, flags=flags), address="test")

    return start


@pytest.fixture(params=matrix("stdio", "http"))
def counter(
    request: pytest.FixtureRequest, fork_server: ForkServer, counter_server: Callable[..., str]
) -> Callable[[str], JSON]:
    """`counter("legacy")` is a service on the real SDK in one era."""

    def describe(era: str) -> JSON:
        if request.param == "stdio":
            return fork_server.service(UPSTREAMS / "counter.py", "--era", era)
        return {"url": counter_server("http", "--era", era)}

    return describe


@asynccontextmanager
async def both_eras(
    gateway: Gateway, what: str
) -> AsyncGenerator[list[tuple[Client, ListChangeCounter]]]:
    """A client of each era, and its notifications."""
    mcp_server = StateholdServer(gateway, version="0")
    legacy, modern = ListChangeCounter(what), ListChangeCounter(what)
    async with (
        Client(mcp_server, cache=None, mode="legacy", message_handler=legacy.handle) as old,
        Client(mcp_server, cache=None) as new,
        AsyncExitStack() as stack,
    ):
        await modern.follow(stack, new)
        yield [(old, legacy), (new, modern)]


@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_a_list_that_an_sdk_server_changes_reaches_clients_of_both_eras(
    started: Any, counter: Callable[[str], JSON], era: str
) -> None:
    async with started({"services": {"counter": counter(era)}}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, "tools") as clients:
            session = await opened_session(clients[0][0])
            await clients[0][0].call_tool("grow", {"session_id": session})
            for client, changes in clients:
                await changes.wait()
                assert (await names(client))[-1] == "extra"
                info = await client.call_tool("session_info", {"session_id": session})
                assert structured(info)["status"] == "idle"
            assert [changes.times for _, changes in clients] == [1, 1]
            paused = await clients[1][0].call_tool("session_pause", {"session_id": session})
            assert structured(paused)["status"] == "paused"


@pytest.mark.parametrize("counter", ["stdio"], indirect=True)
async def test_a_service_that_lists_a_name_of_another_later_does_not_take_it_over(
    started: Any, counter: Callable[[str], JSON]
) -> None:
    services = {"first": counter("legacy"), "second": counter("legacy")}
    async with started({"services": services}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, "tools") as clients:
            client, changes = clients[0]
            session = await opened_session(client)
            for tool in ("second_grow", "grow"):
                await client.call_tool(tool, {"session_id": session})
                await changes.wait()
            listed = (await client.list_tools(meta=ASKS_SERVICE)).tools
            owners = {tool.name: (tool.meta or {}).get("statehold/service") for tool in listed}
            assert (owners["extra"], owners["first_extra"]) == ("second", "first")


@pytest.mark.parametrize("counter", ["stdio"], indirect=True)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_prompt_stays_with_the_service_that_had_it_first(
    started: Any, counter: Callable[[str], JSON], is_listed: bool
) -> None:
    services = {"first": counter("legacy"), "second": counter("legacy")}
    async with started({"services": services}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, "prompts") as clients:
            client, changes = clients[0]
            session = await opened_session(client)
            for tool in ("second_grow", "grow"):
                await client.call_tool(tool, {"session_id": session, "what": "prompts"})
                await changes.wait()
                if not is_listed and tool == "second_grow":
                    continue
                listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
                assert listed["extra"].description == "A prompt of second."


@pytest.mark.thorough
@pytest.mark.parametrize("counter", ["http"], indirect=True)
@pytest.mark.parametrize("era", matrix("legacy", "modern"))
async def test_prompts_that_an_sdk_server_changes_reach_clients_of_both_eras(
    started: Any, counter: Callable[[str], JSON], era: str
) -> None:
    async with started({"services": {"counter": counter(era)}}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, "prompts") as clients:
            session = await opened_session(clients[0][0])
            grow: JSON = {"session_id": session, "what": "prompts"}
            await clients[0][0].call_tool("grow", grow)
            for client, changes in clients:
                await changes.wait()
                prompts = (await client.list_prompts()).prompts
                assert [prompt.name for prompt in prompts] == ["report", "extra"]
            assert [changes.times for _, changes in clients] == [1, 1]


@pytest.mark.thorough
@pytest.mark.parametrize("counter", ["http"], indirect=True)
@pytest.mark.parametrize("what", matrix("tools", "prompts"))
async def test_the_first_change_is_followed_at_once(
    started: Any, counter: Callable[[str], JSON], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changes, "DEBOUNCE_SECONDS", 3600.0)
    async with started({"services": {"counter": counter("legacy")}}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, what) as clients:
            session = await opened_session(clients[0][0])
            await clients[0][0].call_tool("grow", {"session_id": session, "what": what})
            for _, changes in clients:
                await changes.wait()


@pytest.mark.thorough
async def test_a_service_that_does_not_list_its_changed_tools_delays_one_list_only(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_updates, "SETTLE_SECONDS", 1.0)
    program = tmp_path / "silent.py"
    program.write_text(SILENT)
    silent = service("quick") | {"args": ["-S", "-E", str(program)], "era": "legacy"}
    async with (
        started({"services": {"silent": silent}}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        await gateway.probes.ready()
        session = await opened_session(client)
        await client.call_tool("change", {"session_id": session})
        with anyio.fail_after(8):
            for _ in range(12):
                assert "change" in await names(client)


@pytest.mark.thorough
async def test_a_change_is_followed_after_its_session_has_closed(
    started: Any, counter_server: Callable[..., str]
) -> None:
    url = counter_server("http", "--era", "modern")
    async with started({"services": {"counter": {"url": url}}}) as gateway:
        await gateway.probes.ready()
        counter: Any = gateway.services["counter"]
        follow, heard = counter.on_changed, anyio.Event()

        def hear(*change: Any) -> None:
            follow(*change)
            heard.set()

        counter.on_changed = hear
        async with both_eras(gateway, "tools") as clients:
            client, changes = clients[1]
            session = await opened_session(client)
            await client.call_tool("grow", {"session_id": session})
            with anyio.fail_after(10):
                await heard.wait()
            await client.call_tool("session_close", {"session_id": session})
            await changes.wait()
            assert (await names(client))[-1] == "extra"


@pytest.mark.thorough
async def test_a_tool_of_one_session_is_offered_and_fails_cleanly_in_another(
    gateway: Gateway,
) -> None:
    mcp_server = StateholdServer(gateway, version="0")
    changes = ListChangeCounter()
    async with Client(
        mcp_server, cache=None, mode="legacy", message_handler=changes.handle
    ) as client:
        one, other = await opened_session(client), await opened_session(client)
        await client.call_tool("grow", {"session_id": one, "name": "inc2"})
        await changes.wait()
        assert "inc2" in await names(client)
        with pytest.raises(Exception, match="Unknown tool: inc2"):
            await client.call_tool("inc2", {"session_id": other})
        assert await count(client, other) == 1


async def test_a_tool_that_its_connections_removed_leaves_the_list(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changes, "DEBOUNCE_SECONDS", 0.05)
    changes = ListChangeCounter()
    async with (
        started({"services": {"quick": service("asking")}}) as gateway,
        Client(
            StateholdServer(gateway, version="0"),
            cache=None,
            mode="legacy",
            message_handler=changes.handle,
        ) as client,
    ):
        await gateway.probes.ready()
        before = await names(client)
        one, other = await opened_session(client), await opened_session(client)

        async def changed(session: str, **how: Any) -> None:
            await client.call_tool("grow", {"session_id": session, "name": "brief", **how})

        await changed(one)
        await changes.wait()
        await changed(other)
        await changed(other, name="second")
        await changes.wait()
        await changed(one, gone=True)
        await changed(one, name="mark")
        await changes.wait()
        # The other session's server still has it.
        assert await names(client) == [*before, "brief", "second", "mark"]
        await changed(other, gone=True)
        await changes.wait()
        assert await names(client) == [*before, "second", "mark"]


async def test_a_new_description_of_a_tool_reaches_clients(started: Any) -> None:
    async with (
        started({"services": {"quick": service("asking")}}) as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        session = await opened_session(client)
        async with client.listen(tools_list_changed=True) as changes:
            for tool in ("grow", "describe"):
                changed = {"name": "brief", "description": "Says it in few words."}
                await client.call_tool(tool, {"session_id": session, **changed})
                with anyio.fail_after(15):
                    await anext(aiter(changes))
        tool = (await client.list_tools()).tools[-1]
        assert tool.name == "brief"
        assert tool.description is not None
        assert "Says it in few words." in tool.description


async def test_a_client_that_does_not_read_delays_no_other_client(gateway: Gateway) -> None:
    """Its notification waits alone; those of the others arrive."""
    mcp_server = StateholdServer(gateway, version="0")
    changes = ListChangeCounter()
    stuck = anyio.Event()

    async def never(message: Any) -> None:
        await stuck.wait()

    async with (
        Client(mcp_server, cache=None, mode="legacy", message_handler=never) as slow,
        Client(mcp_server, cache=None, mode="legacy", message_handler=changes.handle) as quick,
    ):
        await slow.list_tools()
        await quick.list_tools()
        for _ in range(3):
            await gateway.tools.notify_changed()
            await changes.wait()
        stuck.set()


async def test_a_list_asked_for_right_after_the_call_that_changed_it_is_new(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changes, "DEBOUNCE_SECONDS", 3600.0)
    async with started({"services": {"quick": service("asking")}}) as gateway:
        await gateway.probes.ready()
        async with both_eras(gateway, "tools") as clients:
            client = clients[0][0]
            session = await opened_session(client)
            for name in ("one", "two"):
                await client.call_tool("grow", {"session_id": session, "name": name})
                for each, _ in clients:
                    with anyio.fail_after(20):
                        assert (await names(each))[-1] == name
            await client.call_tool("grow", {"session_id": session, "name": "three"})
            with pytest.raises(MCPError, match="Unknown tool: three"):
                # It reaches the server, which lists the tool and does not have it.
                await client.call_tool("three", {"session_id": session})


async def test_a_list_may_be_kept_only_if_no_service_starts_or_can_change_its_list(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def times(gateway: Gateway) -> set[int]:
        async with Client(StateholdServer(gateway, version="0"), cache=None) as client:
            lists = (
                await client.list_tools(),
                await client.list_prompts(),
                await client.list_resource_templates(),
            )
            return {each.ttl_ms for each in lists}

    async with started({"services": {"quick": service("quick")}}) as gateway:
        await gateway.probes.ready()
        assert await times(gateway) == {60_000}
    async with started({"services": {"growing": service("asking")}}) as gateway:
        await gateway.probes.ready()
        assert await times(gateway) == {0}
    monkeypatch.setattr("statehold.server.gateway.probing.LIST_WAIT_SECONDS", 0.0)
    slow = service("bad", "hang-at-start", prefix="h_")
    async with started({"services": {"slow": slow, "quick": service("quick")}}) as gateway:
        assert await times(gateway) == {0}
