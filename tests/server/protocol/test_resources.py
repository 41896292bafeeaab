"""Resources and prompts of a session's services, over every transport in both protocol eras."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import (
    INVALID_PARAMS,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    TextContent,
    TextResourceContents,
)
from support.gateway_process import JSON, Way, count, opened_session, service, structured, toml

from statehold.server.config.load import load
from statehold.server.gateway.uris import matches_template
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {
        "services": {
            "asking": service("asking", "--era", "legacy"),
            "has space": service("asking", "--era", "modern", prefix="spaced_"),
            "plain": service("quick", prefix="plain_"),
            "gone": service("bad", "exit-at-start"),
        }
    }


def address(session: str, name: str = "asking", uri: str = "quick%3A%2F%2Fvalue") -> str:
    return f"session://{session}/{name}/{uri}"


async def read(client: Client, uri: str) -> TextResourceContents:
    contents = (await client.read_resource(uri)).contents
    assert len(contents) == 1
    assert isinstance(contents[0], TextResourceContents)
    return contents[0]


async def test_templates_say_how_a_resource_of_a_session_is_addressed(client: Client) -> None:
    resource_templates = (await client.list_resource_templates()).resource_templates
    assert [t.uri_template for t in resource_templates] == [
        "session://{session_id}/state",
        "session://{session_id}/asking/{uri}",
        "session://{session_id}/has%20space/{uri}",
    ]
    # Without a session named by the URL there is nothing to list.
    assert (await client.list_resources()).resources == []


async def test_a_resource_is_read_in_its_session(client: Client) -> None:
    one, two = await opened_session(client), await opened_session(client)
    for _ in range(3):
        await count(client, one)
    assert (await read(client, address(one))).text == "3"
    assert (await read(client, address(two))).text == "0"
    content = await read(client, address(one))
    assert str(content.uri) == address(one)
    assert (await read(client, address(one, "has%20space"))).text == "0"


async def test_a_resource_can_be_addressed_by_the_sessions_name(client: Client, way: Way) -> None:
    name = f"resource {way.transport} {way.era}"
    session = await opened_session(client, name=name)
    assert await count(client, session) == 1
    content = await read(client, address(name.replace(" ", "%20")))
    assert content.text == "1"
    assert str(content.uri) == address(session)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("quick://value", "session://"),
        ("session://", "session://"),
        ("session://x", "session://"),
        (address("sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"), "session_not_found"),
        (address("%00"), "session_not_found"),
    ],
)
async def test_an_address_that_leads_nowhere_is_an_error(
    client: Client, uri: str, said: str
) -> None:
    with pytest.raises(MCPError) as error_info:
        await client.read_resource(uri)
    assert error_info.value.error.code == INVALID_PARAMS
    assert said in error_info.value.error.message


async def test_errors_of_a_session_and_of_the_upstream_reach_the_reader(client: Client) -> None:
    session = await opened_session(client, services=["asking", "plain", "gone"])
    wrong = {
        address(session, "nobody"): "service_not_bound",
        address(session, "has%20space"): "service_not_bound",
        address(session, "plain"): "Method not found",
        address(session, "gone"): "service_unavailable",
        address(session, uri="quick%3A%2F%2Fother"): "Unknown resource: quick://other",
    }
    for uri, words in wrong.items():
        with pytest.raises(MCPError) as error_info:
            await client.read_resource(uri)
        assert words in error_info.value.error.message
        assert "Traceback" not in str(error_info.value.error)
        if words.startswith("Unknown resource"):
            # The address that was asked for, in place of the upstream's own.
            assert error_info.value.error.data == {"uri": uri}
    await client.call_tool("session_close", {"session_id": session})
    with pytest.raises(MCPError, match="session_closed") as error_info:
        await client.read_resource(address(session))
    assert error_info.value.error.data["code"] == "session_closed"


async def test_prompts_take_the_session_first(client: Client) -> None:
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == [
        "report",
        "quiz",
        "spaced_report",
        "spaced_quiz",
    ]
    arguments = prompts[0].arguments or []
    assert [(a.name, bool(a.required)) for a in arguments] == [
        ("session_id", True),
        ("tone", False),
    ]
    session = await opened_session(client)
    assert await count(client, session) == 1
    found = await client.get_prompt("report", {"session_id": session, "tone": "merry"})
    content = found.messages[0].content
    assert isinstance(content, TextContent)
    assert content.text == "Report 1 in a merry tone."
    with pytest.raises(MCPError, match="session_create"):
        await client.get_prompt("report", {})
    with pytest.raises(MCPError, match="Unknown prompt"):
        await client.get_prompt("nothing", {"session_id": session})


async def answer(context: object, params: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": "42"})


@pytest.fixture(scope="module")
async def person(way: Way) -> AsyncGenerator[Client]:
    """A connection with a user who can be asked."""
    async with way.connect(elicitation_callback=answer) as connected:
        yield connected


async def test_a_prompt_and_a_resource_may_ask_the_person(person: Client) -> None:
    session = await opened_session(person)
    for name, prefix in (("asking", ""), ("has%20space", "spaced_")):
        with anyio.fail_after(20):
            prompt = await person.get_prompt(f"{prefix}quiz", {"session_id": session})
            content = prompt.messages[0].content
            assert isinstance(content, TextContent)
            assert json.loads(content.text)["content"] == {"answer": "42"}
            uri = address(session, name, "quick%3A%2F%2Fasked")
            part = await read(person, uri)
        assert json.loads(part.text)["content"] == {"answer": "42"}
        assert str(part.uri) == uri
    info = structured(await person.call_tool("session_info", {"session_id": session}))
    assert (info["status"], info["in_flight"]) == ("idle", 0)


async def test_a_client_without_elicitation_gets_the_prompt_of_a_refused_question(
    client: Client,
) -> None:
    session = await opened_session(client)
    prompt = await client.get_prompt("quiz", {"session_id": session})
    content = prompt.messages[0].content
    assert isinstance(content, TextContent)
    assert "cannot answer" in content.text


async def test_a_parked_prompt_is_continued_only_as_a_prompt(memory: Way) -> None:
    if not memory.modern:
        pytest.skip("a legacy client is asked while its request runs")
    async with memory.connect(elicitation_callback=answer) as client:
        session, other = await opened_session(client), await opened_session(client)
        question = await client.session.get_prompt(
            "quiz", {"session_id": session}, allow_input_required=True
        )
        assert isinstance(question, InputRequiredResult)
        continuation: Any = {
            "input_responses": dict.fromkeys(
                question.input_requests or {}, await answer(None, None)
            ),
            "request_state": question.request_state,
            "allow_input_required": True,
        }
        info = structured(await client.call_tool("session_info", {"session_id": session}))
        assert (info["status"], info["in_flight"]) == ("active", 1)
        for wrong in (
            client.session.get_prompt("quiz", {"session_id": other}, **continuation),
            client.session.get_prompt("report", {"session_id": session}, **continuation),
            client.session.read_resource(
                address(session, uri="quick%3A%2F%2Fasked"), **continuation
            ),
        ):
            with pytest.raises(MCPError, match="has ended") as error_info:
                await wrong
            assert error_info.value.error.code == INVALID_PARAMS
        prompt = await client.session.get_prompt("quiz", {"session_id": session}, **continuation)
        assert isinstance(prompt, GetPromptResult)
        with pytest.raises(MCPError, match="has ended"):
            await client.session.get_prompt("quiz", {"session_id": session}, **continuation)


async def test_a_parked_resource_ends_with_its_session(
    memory: Way, mcp_server: StateholdServer
) -> None:
    if not memory.modern:
        pytest.skip("a legacy client is asked while its request runs")
    async with memory.connect(elicitation_callback=answer) as client:
        session = await opened_session(client)
        uri = address(session, uri="quick%3A%2F%2Fasked")
        question = await client.session.read_resource(uri, allow_input_required=True)
        assert isinstance(question, InputRequiredResult)
        assert len(mcp_server.open_calls) == 1
        await client.call_tool("session_close", {"session_id": session, "force": True})
        with pytest.raises(MCPError, match="has ended"):
            await client.session.read_resource(
                uri, request_state=question.request_state, allow_input_required=True
            )
        assert len(mcp_server.open_calls) == 0


# Changes of resources: clients are notified only of states.


async def test_the_capabilities_promise_only_the_notifications_that_are_sent(
    way: Way, client: Client
) -> None:
    capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.resources is not None
    assert capabilities.resources.subscribe
    assert not capabilities.resources.list_changed
    assert capabilities.tools is not None
    assert capabilities.tools.list_changed
    assert capabilities.prompts is not None
    assert capabilities.prompts.list_changed
    session = await opened_session(client)
    if way.modern:
        wanted = [address(session)]
        async with client.listen(
            tools_list_changed=True, resources_list_changed=True, resource_subscriptions=wanted
        ) as changes:
            honored = changes.honored.model_dump(by_alias=True, exclude_none=True)
        assert honored == {"toolsListChanged": True}
    else:
        with pytest.raises(MCPError, match="does not notify") as error_info:
            await client.subscribe_resource(address(session))  # pyright: ignore[reportDeprecated]
        assert error_info.value.error.code == INVALID_PARAMS


@pytest.mark.thorough
async def test_a_pinned_session_lists_its_resources_and_prompts(http: Way) -> None:
    async with http.connect(f"/s/resources {http.era}/mcp") as client:
        listed = (await client.list_resources()).resources
        assert [r.name for r in listed] == ["state", "value", "value"]
        uris = [str(r.uri) for r in listed[1:]]
        session = uris[0].split("/")[2]
        assert uris == [address(session), address(session, "has%20space")]
        await client.call_tool("inc", {})
        assert (await read(client, uris[0])).text == "1"
        report = (await client.list_prompts()).prompts[0]
        assert [argument.name for argument in report.arguments or []] == ["tone"]
        prompt = await client.get_prompt("report", {})
        content = prompt.messages[0].content
        assert isinstance(content, TextContent)
        assert content.text == "Report 1 in a plain tone."
        # Another session is out of reach from here.
        async with http.connect() as other:
            foreign = await opened_session(other)
        with pytest.raises(MCPError, match="session_not_found"):
            await client.read_resource(address(foreign))


async def test_a_uri_in_the_words_of_a_server_can_be_read_in_a_pinned_session(
    tmp_path: Path,
) -> None:
    services = {"asking": service("asking", "--era", "legacy"), "plain": service("quick")}
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": services}))
    flags = {"data": str(tmp_path / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as gateway:
        pinned = StateholdServer(gateway, version="0", pinned_name="mine")
        async with Client(pinned, cache=None) as client:
            assert (await read(client, "quick://value")).text == "0"
            with pytest.raises(MCPError, match="Unknown resource: quick://other"):
                await client.read_resource("quick://other")
        async with Client(StateholdServer(gateway, version="0"), cache=None) as client:
            with pytest.raises(MCPError, match="Unknown resource: use session://"):
                await client.read_resource("quick://value")


async def test_a_uri_of_two_services_needs_its_address(http: Way) -> None:
    async with http.connect(f"/s/two-of-one-uri-{http.era}/mcp") as client:
        with pytest.raises(MCPError, match="Unknown resource: use session://"):
            await client.read_resource("quick://value")


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("a://b", "a://b", True),
        ("a://b", "a://bc", False),
        ("a://{x}", "a://b/c", True),
        ("a://{x}/data", "a://b/data", True),
        ("a://{x}/data", "a://b/other", False),
        ("a://{x}/{y}/z", "a://1/2/z", True),
        ("a://{x}/{y}/z", "a://z", False),
        ("a{?q}", "a?q=1", True),
        (5, "a", False),
    ],
)
def test_a_template_is_found_for_a_uri(template: object, uri: str, matches: bool) -> None:
    assert matches_template(template, uri) is matches
