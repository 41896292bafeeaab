"""Resources and prompts of a session's services, over every transport in both protocol eras."""

from __future__ import annotations

import pytest
from front import JSON, Way, count, opened_session, service
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, ElicitResult, TextContent, TextResourceContents


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
    found = (await client.list_resource_templates()).resource_templates
    assert [t.uri_template for t in found] == [
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
    found = await read(client, address(one))
    assert str(found.uri) == address(one)
    assert (await read(client, address(one, "has%20space"))).text == "0"


async def test_a_resource_can_be_addressed_by_the_sessions_name(client: Client, way: Way) -> None:
    name = f"resource {way.transport} {way.era}"
    session = await opened_session(client, name=name)
    assert await count(client, session) == 1
    found = await read(client, address(name.replace(" ", "%20")))
    assert found.text == "1"
    assert str(found.uri) == address(session)


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
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert caught.value.error.code == INVALID_PARAMS
    assert said in caught.value.error.message


async def test_errors_of_a_session_and_of_the_upstream_reach_the_reader(client: Client) -> None:
    session = await opened_session(client, services=["asking", "plain", "gone"])
    wrong = {
        address(session, "nobody"): "service_not_bound",
        address(session, "has%20space"): "service_not_bound",
        address(session, "plain"): "Method not found",
        address(session, "gone"): "service_unavailable",
        address(session, uri="quick%3A%2F%2Fother"): "Unknown resource: quick://other",
    }
    for uri, said in wrong.items():
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        assert said in caught.value.error.message
        assert "Traceback" not in str(caught.value.error)
    await client.call_tool("session_close", {"session_id": session})
    with pytest.raises(MCPError, match="session_closed") as caught:
        await client.read_resource(address(session))
    assert caught.value.error.data["code"] == "session_closed"


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
    said = found.messages[0].content
    assert isinstance(said, TextContent)
    assert said.text == "Report 1 in a merry tone."
    with pytest.raises(MCPError, match="session_create"):
        await client.get_prompt("report", {})
    with pytest.raises(MCPError, match="Unknown prompt"):
        await client.get_prompt("nothing", {"session_id": session})


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_a_prompt_may_ask_the_person(http: Way, upstream: str) -> None:
    """But not a legacy upstream's a 2026-07-28 client, whose request would have to end first."""

    async def answer(context: object, params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "42"})

    async with http.connect(elicitation_callback=answer) as client:
        session = await opened_session(client)
        name = "quiz" if upstream == "legacy" else "spaced_quiz"
        found = await client.get_prompt(name, {"session_id": session})
        said = found.messages[0].content
        assert isinstance(said, TextContent)
        expected = "cannot answer" if (upstream, http.era) == ("legacy", "modern") else "42"
        assert expected in said.text


async def test_a_pinned_session_lists_its_resources_and_prompts(http: Way) -> None:
    async with http.connect(f"/s/resources {http.era}/mcp") as client:
        listed = (await client.list_resources()).resources
        assert [r.name for r in listed] == ["value", "value"]
        uris = [str(r.uri) for r in listed]
        session = uris[0].split("/")[2]
        assert uris == [address(session), address(session, "has%20space")]
        await client.call_tool("inc", {})
        assert (await read(client, uris[0])).text == "1"
        report = (await client.list_prompts()).prompts[0]
        assert [argument.name for argument in report.arguments or []] == ["tone"]
        found = await client.get_prompt("report", {})
        said = found.messages[0].content
        assert isinstance(said, TextContent)
        assert said.text == "Report 1 in a plain tone."
        # Another session is out of reach from here.
        async with http.connect() as other:
            foreign = await opened_session(other)
        with pytest.raises(MCPError, match="session_not_found"):
            await client.read_resource(address(foreign))
