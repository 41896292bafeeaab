"""After a restart the earlier lists of a service are offered at once, and renewed in the background."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    ASKS_SERVICE,
    JSON,
    Running,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.selection import matrix

from statehold.server.config.load import load
from statehold.server.exit_codes import OK
from statehold.server.gateway import probing
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.shell.main import main
from statehold.tools.upstream import change_stream

# Answers `initialize` when the file `go` is there, and lists the tools that the file `names` names.
UPSTREAM = """
import json, os, sys, time
folder = sys.argv[1]
def send(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        while not os.path.exists(folder + "/go"):
            time.sleep(0.02)
        send(request, {"protocolVersion": request["params"]["protocolVersion"],
                       "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {"name": "gated", "version": "1"}})
    elif request["method"] == "tools/list":
        names = open(folder + "/names").read().split()
        send(request, {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]})
    elif request["method"] == "prompts/list":
        names = open(folder + "/names").read().split()
        send(request, {"prompts": [{"name": n} for n in names]})
    elif request["method"] == "tools/call":
        send(request, {"content": [{"type": "text", "text": request["params"]["name"]}]})
    elif request["method"] == "prompts/get":
        content = {"type": "text", "text": os.path.basename(folder)}
        send(request, {"messages": [{"role": "user", "content": content}]})
    elif "id" in request:
        send(request, {})
"""


class GatedUpstream:
    """An upstream that starts when the test says so, and its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.config = folder / "statehold.toml"
        self.program = folder / "gated.py"
        self.program.write_text(UPSTREAM)
        self.offer("before")
        self.open()
        self.configure()

    def offer(self, names: str) -> None:
        (self.folder / "names").write_text(names)

    def open(self) -> None:
        (self.folder / "go").touch()

    def close(self) -> None:
        (self.folder / "go").unlink()

    @property
    def service(self) -> JSON:
        args = ["-S", "-E", str(self.program), str(self.folder)]
        return service("quick") | {"args": args, "era": "legacy"}

    def configure(self, **options: Any) -> None:
        self.config.write_text(toml({"services": {"gated": self.service | options}}))

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Client]:
        """A client of a gateway in this process, over the data folder of those before it."""
        async with (
            self.opened() as gateway,
            Client(StateholdServer(gateway, version="0"), cache=None) as client,
        ):
            yield client

    def opened(self) -> AbstractAsyncContextManager[Gateway]:
        config = load(config=self.config, services=None, flags={"data": str(self.data)})
        return open_gateway(config, address="test")


@pytest.fixture
def gated(tmp_path: Path) -> GatedUpstream:
    return GatedUpstream(tmp_path)


async def offered(client: Client) -> set[str]:
    tools = {tool.name for tool in (await client.list_tools()).tools}
    return tools & {"before", "after"}


async def test_a_restart_lists_the_tools_at_once_and_announces_changes(
    gated: GatedUpstream,
) -> None:
    async with gated.connected() as client:
        assert await offered(client) == {"before"}
    gated.close()
    gated.offer("before after")
    async with gated.connected() as client, client.listen(tools_list_changed=True) as changes:
        # The upstream does not answer yet: only the kept list can be this one.
        assert await offered(client) == {"before"}
        gated.open()
        with anyio.fail_after(30):
            await anext(aiter(changes))
        assert await offered(client) == {"before", "after"}
    gated.close()
    async with gated.connected() as client:
        assert await offered(client) == {"before", "after"}
        gated.open()


@pytest.mark.parametrize("change", ["strict", *matrix("configuration", "damage")])
async def test_a_kept_list_that_does_not_fit_is_ignored(gated: GatedUpstream, change: str) -> None:
    async with gated.connected() as client:
        assert await offered(client) == {"before"}
    gated.offer("after")
    (file,) = (gated.data / "profiles").glob("*[0-9a-f][0-9a-f].json")
    assert file.stat().st_mode & 0o777 == 0o600
    if change == "configuration":
        gated.configure(env={"ANOTHER": "1"})
    elif change == "strict":
        # The list may have definitions that are held back now.
        gated.config.write_text(f'pins = "strict"\n{gated.config.read_text()}')
    else:
        file.write_text(file.read_text()[:-20])
    async with gated.connected() as client:
        assert await offered(client) == {"after"}


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_service_that_renames_its_tools_after_a_restart_takes_no_name_of_another(
    tmp_path: Path, is_listed: bool
) -> None:
    upstreams: dict[str, GatedUpstream] = {}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        upstreams[name] = GatedUpstream(tmp_path / name)
    first, second = upstreams["first"], upstreams["second"]
    services = {name: upstream.service for name, upstream in upstreams.items()}
    first.config.write_text(toml({"services": services}))
    first.offer("other")
    second.offer("transfer")
    async with first.connected() as client:
        await client.list_tools()
    first.offer("transfer")
    first.close()
    second.close()
    async with (
        first.opened() as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
        client.listen(tools_list_changed=True, prompts_list_changed=True) as changes,
    ):
        if is_listed:
            await client.list_tools()
            await client.list_prompts()
        first.open()
        with anyio.fail_after(30):
            await anext(aiter(changes))
            second.open()
            await gateway.probes.ready()
        listed = await client.list_tools(meta=ASKS_SERVICE)
        tools = {tool.name: tool.meta for tool in listed.tools}
        assert tools["transfer"] == {"statehold/service": "second"}
        assert tools["first_transfer"] == {"statehold/service": "first"}
        prompts = {each.name: each.description for each in (await client.list_prompts()).prompts}
        assert prompts["transfer"] == "A prompt of second."


@pytest.mark.thorough
def test_the_doctor_names_renamed_tools_of_services_that_ran_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    services: JSON = {name: service("naming", "read_file") for name in ("one", "two")}
    config.write_text(toml({"services": services}))

    async def use(running: Running) -> None:
        async with Client(running.url + "/mcp", cache=None) as client:
            await client.list_tools()

    with serving(config, data) as running:
        anyio.run(use, running)
        assert running.stop() == 0
    assert main(["doctor", "--json", "--config", str(config), "--data", str(data)]) == OK
    checks: list[JSON] = json.loads(capsys.readouterr().out)["checks"]
    (found,) = [check for check in checks if check["name"] == "tools of two"]
    assert "read_file is two_read_file" in found["detail"]
    assert "prefix in [services.two]" in found["remedy"]


class TwoServices:
    """A configuration with two gated upstreams of which each offers `same`, over one data folder."""

    def __init__(self, folder: Path) -> None:
        self.upstreams: dict[str, GatedUpstream] = {}
        for name in ("first", "second"):
            (folder / name).mkdir()
            self.upstreams[name] = GatedUpstream(folder / name)
            self.upstreams[name].offer("same")
        self.first, self.second = self.upstreams.values()
        self.configure()

    def configure(self, *order: str, **options: JSON) -> None:
        services = {
            name: self.upstreams[name].service | options.get(name, {})
            for name in order or self.upstreams
        }
        self.first.config.write_text(toml({"services": services}))

    async def names(self) -> dict[str, dict[str, str]]:
        """Return the services of the names that a new process lists when all services are probed."""
        async with self.first.connected() as client, self.first.opened() as gateway:
            with anyio.fail_after(30):
                await gateway.probes.ready()
            return await listed_names(client)


async def listed_names(client: Client) -> dict[str, dict[str, str]]:
    tools = (await client.list_tools(meta=ASKS_SERVICE)).tools
    prompts = (await client.list_prompts()).prompts
    return {
        "tools": {
            tool.name: tool.meta["statehold/service"]
            for tool in tools
            if tool.meta and "statehold/service" in tool.meta
        },
        "prompts": {
            each.name: str(each.description).removeprefix("A prompt of ").removesuffix(".")
            for each in prompts
        },
    }


def both(**services: str) -> dict[str, dict[str, str]]:
    return {"tools": services, "prompts": services}


@pytest.fixture
def two(tmp_path: Path) -> TwoServices:
    return TwoServices(tmp_path)


async def test_names_are_the_same_at_every_start_whichever_service_starts_first(
    two: TwoServices, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first_wins, second_wins = (
        both(same="first", second_same="second"),
        both(same="second", first_same="first"),
    )
    # A first list that waits in vain for the first service gives its name to the second.
    two.first.close()
    monkeypatch.setattr(probing, "LIST_WAIT_SECONDS", 0.5)
    async with (
        two.first.opened() as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
    ):
        while not (await listed_names(client))["tools"]:
            await gateway.probes.wait_next()
        assert await listed_names(client) == both(same="second")
        two.first.open()
        with anyio.fail_after(30):
            await gateway.probes.ready()
        assert await listed_names(client) == second_wins
    assert await two.names() == second_wins
    files = ["--config", str(two.first.config), "--data", str(two.first.data)]
    check = ["services", "check", "first", *files]
    assert await anyio.to_thread.run_sync(main, check) == OK
    said = capsys.readouterr().out
    assert "second had these names first: same is first_same, prompt same is first_same" in said
    # A name that the configuration no longer allows its service is free, and another order gives all names anew.
    two.configure(second={"prefix": "b_"})
    assert await two.names() == both(same="first", b_same="second")
    two.configure()
    assert await two.names() == first_wins
    two.configure("second", "first")
    assert await two.names() == second_wins


async def test_a_late_first_service_has_its_names_if_no_client_knows_them_yet(
    two: TwoServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.first.close()
    monkeypatch.setattr(probing, "LIST_WAIT_SECONDS", 0.0)
    async with two.first.opened() as gateway:
        with anyio.fail_after(30):
            await gateway.probes.wait_next()
        two.first.open()
        with anyio.fail_after(30):
            await gateway.probes.ready()
        async with Client(StateholdServer(gateway, version="0"), cache=None) as client:
            assert await listed_names(client) == both(same="first", second_same="second")


@pytest.mark.thorough
@pytest.mark.parametrize("damage", ['{"format": 2}', "{"])
async def test_damaged_names_are_given_anew(two: TwoServices, damage: str) -> None:
    names = await two.names()
    (two.first.data / "profiles" / "names.json").write_text(damage)
    assert await two.names() == names


@pytest.mark.thorough
async def test_another_configuration_of_the_data_folder_leaves_the_names_of_its_services(
    two: TwoServices,
) -> None:
    two.first.offer("other")
    assert await two.names() == both(other="first", same="second")
    two.configure("first")
    assert await two.names() == both(other="first")
    two.first.offer("same")
    two.configure()
    assert await two.names() == both(same="second", first_same="first")


async def test_a_prompt_of_a_second_service_can_be_got_under_its_own_name(two: TwoServices) -> None:
    async with two.first.connected() as client:
        session = structured(await client.call_tool("session_create"))["session_id"]
        assert await listed_names(client) == both(same="first", second_same="second")
        found = await client.get_prompt("second_same", {"session_id": session})
        assert found.messages[0].content == types.TextContent(text="second", type="text")


async def test_a_tool_or_prompt_that_a_service_does_not_announce_is_found_when_it_is_used(
    gated: GatedUpstream,
) -> None:
    async with gated.connected() as client:
        session = await opened_session(client)
        one = {"session_id": session}
        assert text_of(await client.call_tool("before", one)) == "before"
        gated.offer("before after")
        text = text_of(await client.call_tool("after", one))
        assert text.startswith("after\n\nNote from Statehold: ")
        assert "1 new tool: after" in text
        assert await offered(client) == {"before", "after"}
        assert (await client.get_prompt("after", one)).messages
        # Names that no service has do not make it ask again and again.
        gated.offer("before after later")
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("later", one)


async def test_a_service_that_announces_nothing_is_asked_from_time_to_time_in_use(
    gated: GatedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_stream, "RENEWAL_SECONDS", 0.0)
    async with (
        gated.connected() as client,
        client.listen(tools_list_changed=True, prompts_list_changed=True) as changes,
    ):
        session = await opened_session(client)
        gated.offer("before after")
        await client.call_tool("before", {"session_id": session})
        with anyio.fail_after(30):
            await anext(aiter(changes))
        assert await offered(client) == {"before", "after"}
