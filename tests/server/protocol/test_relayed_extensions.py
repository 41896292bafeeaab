"""Skills, and the methods of vendors: at an address that stands for one server, and at one that stands for several."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import yaml
from mcp import Client, MCPError
from support.gateway_process import JSON, service, text_of
from support.open_gateways import serving_gateway
from support.raw_requests import send
from support.selection import matrix
from support.task_client import Gate
from support.waiting import until

from statehold.access.scopes import READ, USE, OperationScopes
from statehold.server.events.requests import EventRequests
from statehold.server.events.webhooks import Webhooks
from statehold.server.gateway import skills
from statehold.server.gateway.gateway import Gateway
from statehold.server.gateway.skills import Skills
from statehold.server.gateway.uris import parse_skill_uri, skill_uri
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.records import Principal
from statehold.tools.browser.egress.resolver import Resolver
from statehold.tools.outbound import OutboundClient
from statehold.tools.upstream.service import UpstreamService

SKILLS = "io.modelcontextprotocol/skills"
VENDOR, MORE = "example.org/vendor", "example.org/more"
OWN = "skill://statehold/SKILL.md"


def skilled(name: str, *arguments: str, era: str = "both", **options: Any) -> JSON:
    words = ("--text", name, "--era", era, *arguments)
    return service("skilled", *words, prefix=f"{name}_", **options)


def connected(gateway: Gateway, mode: Any = "auto", pin: str | None = None) -> Client:
    return Client(StateholdServer(gateway, version="0", pinned_name=pin), cache=None, mode=mode)


async def refusal(client: Client, method: str, **params: Any) -> types.ErrorData:
    with pytest.raises(MCPError) as raised:
        await send(client, method, **params)
    return raised.value.error


async def skills_of(client: Client) -> dict[str, JSON]:
    return {skill["uri"]: skill for skill in (await send(client, "skills/list"))["skills"]}


async def content(client: Client, uri: str) -> str:
    (part,) = (await client.read_resource(uri)).contents
    assert isinstance(part, types.TextResourceContents)
    assert str(part.uri) == uri
    return part.text


async def check_digests(client: Client, skill: JSON) -> None:
    for file in skill["resources"]:
        data = (await content(client, file["uri"])).encode()
        assert file["digest"] == f"sha256:{sha256(data).hexdigest()}"
        assert file["size"] == len(data)


def ours_in(extensions: JSON) -> bool:
    """Remove the extension of our own tasks, which belongs to one era, and return whether it was there."""
    return extensions.pop("io.modelcontextprotocol/tasks", None) is not None


def requests_in(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)["tool"] for line in lines]


@pytest.fixture(params=matrix("modern", "legacy"))
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("mode", matrix("auto", "legacy"))
async def test_skills_of_two_servers_keep_their_bytes_after_a_restart(
    tmp_path: Path, era: str, mode: Any
) -> None:
    services = {
        "one": skilled("one", era=era),
        "two": skilled("two", era=era),
        "out": skilled("out", "--refuse", "skills/list"),
    }
    found: list[dict[str, JSON]] = []
    for _ in range(2):
        async with (
            serving_gateway(tmp_path, **services) as gateway,
            connected(gateway, mode) as client,
        ):
            found.append(await skills_of(client))
            for skill in found[-1].values():
                await check_digests(client, skill)
                assert (await send(client, "skills/get", uri=skill["uri"]))["skill"] == skill
                front = (await content(client, skill["uri"])).split("---\n")[1]
                assert yaml.safe_load(front) == skill["frontmatter"]
    first, second = found
    assert first == second
    # The skill of every service comes, but for those that are too large or malformed, or whose server refuses.
    assert list(first) == [
        OWN,
        "skill://one/refunds/SKILL.md",
        "skill://one/~github/o/r/refunds/SKILL.md",
        "skill://two/refunds/SKILL.md",
        "skill://two/~github/o/r/refunds/SKILL.md",
    ]
    assert len(first["skill://one/refunds/SKILL.md"]["resources"]) == 2
    assert first["skill://two/refunds/SKILL.md"]["_meta"]["statehold/service"] == "two"


async def test_the_answers_about_skills_are_kept_and_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    async with (
        serving_gateway(
            tmp_path, one=skilled("one", "--log", str(log)), two=skilled("two")
        ) as gateway,
        connected(gateway) as client,
    ):
        for _ in range(3):
            listed = await send(client, "skills/list")
            assert listed["cacheScope"] == "private"
            assert listed["resultType"] == "complete"
        assert requests_in(log).count("skills/list") == 2  # its two pages
        # No session is needed, and none was opened.
        uri = "skill://one/refunds/SKILL.md"
        for _ in range(2):
            entry = await send(client, "skills/get", uri=uri)
            assert (entry["ttlMs"], entry["cacheScope"]) == (5000, "private")
            await content(client, uri)
        assert requests_in(log).count("skills/get") == 1
        assert requests_in(log).count("resources/read") == 1
        assert len(gateway.registry.directory) == 0
        # But for large ones, and until the service changes.
        monkeypatch.setattr(skills, "ANSWER_CHARACTERS", 1)
        for _ in range(2):
            await content(client, "skill://one/refunds/examples/mail.md")
        assert requests_in(log).count("resources/read") == 3
        changed = gateway.services["one"]
        assert isinstance(changed, UpstreamService)
        await changed.refresh()
        for _ in range(2):
            await content(client, uri)
            await send(client, "skills/list")
        assert requests_in(log).count("skills/list") == 4


async def test_a_slow_service_and_slow_requests_of_others_keep_no_list_waiting(
    tmp_path: Path,
) -> None:
    log, gate = tmp_path / "log", Gate(tmp_path / "gate")
    slow = skilled("one", "--log", str(log), "--gate", str(gate.path))
    async with (
        serving_gateway(tmp_path, one=slow, two=skilled("two")) as gateway,
        anyio.create_task_group() as tasks,
    ):
        ada, ben, known = Principal(subject="ada"), Principal(subject="ben"), Skills(gateway)
        for path in ("refunds/SKILL.md", "refunds/examples/mail.md", "hidden/SKILL.md"):
            tasks.start_soon(known.read, ada, f"skill://one/{path}")

        def reads() -> int:
            return requests_in(log).count("resources/read")

        async def services() -> set[str]:
            listed = (await known.list(ben))["skills"]
            return {each["uri"].split("/")[2] for each in listed} - {"statehold"}

        await until(lambda: reads() == 1)
        with anyio.fail_after(20):
            assert await services() == {"two"}
            # The second one waited before the list.
            for number in (1, 2):
                await until(lambda number=number: reads() == number)
                await gate.release()

            async def are_all_known() -> bool:
                return await services() == {"one", "two"}

            await until(are_all_known)
        assert reads() <= 3
        tasks.cancel_scope.cancel()


async def test_a_skill_outside_of_the_list_is_found_and_other_files_are_not(tmp_path: Path) -> None:
    async with (
        serving_gateway(tmp_path, one=skilled("one"), two=skilled("two")) as gateway,
        connected(gateway) as client,
    ):
        hidden = "skill://one/hidden/SKILL.md"
        skill = (await send(client, "skills/get", uri=hidden))["skill"]
        assert (skill["uri"], skill["resources"]) == (hidden, "dynamic")
        assert "name: hidden" in await content(client, hidden)
        error = await refusal(client, "skills/get", uri="skill://one/large/SKILL.md")
        assert (error.code, "512" in error.message) == (types.INVALID_PARAMS, True)
        unknown = "skill://one/nothing/SKILL.md"
        for method in ("skills/get", "resources/read"):
            error = await refusal(client, method, uri=unknown)
            assert (error.code, error.data) == (types.INVALID_PARAMS, {"uri": unknown})
            assert (await refusal(client, method, uri="skill://no/x")).code == types.INVALID_PARAMS
        for uri in ("skill://one/~github/o/r/secret.txt", "skill://one/~github/o/r/refunds/../x"):
            assert (await refusal(client, "resources/read", uri=uri)).code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", matrix("auto", "legacy"))
async def test_a_pinned_address_is_the_server_itself(tmp_path: Path, era: str, mode: Any) -> None:
    async with (
        serving_gateway(tmp_path, one=skilled("one", era=era)) as gateway,
        connected(gateway, mode, "a") as client,
        connected(gateway, mode, "b") as other,
        connected(gateway, mode) as several,
    ):
        assert client.server_capabilities is not None
        declared = dict(client.server_capabilities.extensions or {})
        assert ours_in(declared) == (mode == "auto")
        assert declared == {SKILLS: {"directoryRead": True}, VENDOR: {"level": 2}}
        assert list(await skills_of(client)) == [
            "skill://refunds/SKILL.md",
            "skill://large/SKILL.md",
            "skill://odd/SKILL.md",
        ]
        assert "Words one" in await content(client, "skill://refunds/SKILL.md")
        counted = [await send(client, "example/count", step=number) for number in (1, 2)]
        assert [result["count"] for result in counted] == [1, 2]
        assert counted[1]["given"] == {"step": 2}
        assert counted[1]["_meta"]["example.org/kept"] == 1
        assert counted[1]["cacheScope"] == "private"
        assert (await send(other, "example/count"))["count"] == 1
        for method in ("example/nothing", "tasks/list", "events/subscribe"):
            assert (await refusal(client, method)).code == types.METHOD_NOT_FOUND, method
        for method in ("example/count", "resources/directory/read"):
            assert (await refusal(several, method)).code == types.METHOD_NOT_FOUND
        assert several.server_capabilities is not None
        declared = dict(several.server_capabilities.extensions or {})
        assert ours_in(declared) == (mode == "auto")
        assert declared == {SKILLS: {}}


async def test_a_capability_without_a_name_of_an_extension_is_declared_for_its_server_only(
    tmp_path: Path,
) -> None:
    async with serving_gateway(tmp_path, one=skilled("one")) as gateway:
        for pin, is_declared in (("a", True), (None, False)):
            async with connected(gateway, pin=pin) as client:
                found = (await send(client, "server/discover"))["capabilities"]
                assert ("events" in found) == is_declared


async def test_where_we_serve_events_those_of_a_server_are_not_passed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serving_gateway(tmp_path, one=skilled("one", "--log", str(log))) as gateway:
        mcp_server = StateholdServer(gateway, version="0", pinned_name="a")
        clock = gateway.registry.core.clock
        webhooks = Webhooks(OutboundClient(Resolver(clock), allow_loopback=False), clock)
        EventRequests(gateway, webhooks).register(mcp_server)
        async with Client(mcp_server, cache=None) as client:
            assert (await send(client, "server/discover"))["capabilities"]["events"] == {}
            assert (await refusal(client, "events/stream")).code == types.METHOD_NOT_FOUND
    assert "events/stream" not in requests_in(log)


async def test_an_error_names_the_client_as_the_one_that_lacks_an_extension(tmp_path: Path) -> None:
    async with (
        serving_gateway(tmp_path, one=skilled("one", era="modern")) as gateway,
        connected(gateway, pin="a") as client,
    ):
        error = await refusal(client, "example/needs")
        assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert "the client does not declare example.org/other" in error.message


async def test_an_extension_that_a_server_begins_to_declare_is_announced(
    tmp_path: Path, era: str
) -> None:
    more = tmp_path / "more"
    async with (
        serving_gateway(tmp_path, one=skilled("one", "--more", str(more), era=era)) as gateway,
        AsyncExitStack() as stack,
    ):
        client = await stack.enter_async_context(connected(gateway, pin="a"))
        owner = await stack.enter_async_context(connected(gateway))
        await client.call_tool("one_get", {})
        # Streams of other addresses get no change of a list that is the same afterwards.
        changes = await stack.enter_async_context(owner.listen(tools_list_changed=True))
        assert MORE not in (await send(client, "server/discover"))["capabilities"]["extensions"]
        more.touch()
        if era == "modern":
            assert text_of(await client.call_tool("one_announce", {})) == "announced"
        else:
            await owner.call_tool("session_restart", {"session_id": "a"})
            await client.call_tool("one_get", {})
        with anyio.fail_after(15):
            async for _ in changes:
                break
        assert MORE in (await send(client, "server/discover"))["capabilities"]["extensions"]


@pytest.mark.thorough
async def test_a_thousand_discoveries_ask_no_service(tmp_path: Path) -> None:
    logs = {f"s{number}": tmp_path / f"log{number}" for number in range(20)}
    services = {name: skilled(name, "--log", str(log)) for name, log in logs.items()}
    async with serving_gateway(tmp_path, **services) as gateway, connected(gateway) as client:
        before = [requests_in(log) for log in logs.values()]
        for _ in range(1000):
            await send(client, "server/discover")
        assert [requests_in(log) for log in logs.values()] == before


def test_addresses_of_skills_lead_back_to_their_uris() -> None:
    for uri in ("skill://a/b/SKILL.md", "github://o/r/x/SKILL.md", "skill://~github/x/SKILL.md"):
        address = skill_uri("a b", uri)
        assert address.startswith("skill://a%20b/")
        assert parse_skill_uri(address) == ("a b", uri)
    assert skill_uri("s", "skill://acme/refunds/SKILL.md") == "skill://s/acme/refunds/SKILL.md"


def test_a_method_of_a_vendor_needs_the_scope_of_a_tool_call() -> None:
    scopes = OperationScopes([])
    assert scopes.required({"method": "example/count"}) == USE
    assert scopes.required({"method": "skills/list"}) == READ
