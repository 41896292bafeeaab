"""The instructions that a client of a pinned session gets when it connects, and the plain addresses of its resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import JSON, UPSTREAMS, Running, Way
from support.selection import matrix

from statehold.server.gateway.gateway import Gateway
from statehold.server.gateway.uris import session_template
from statehold.server.protocol.introduction import instructions
from statehold.server.protocol.results import mark_request_state
from statehold.server.sdk.caller import can_elicit

CONFORMANCE = "Answers what the conformance suite asks."


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer) -> JSON:
    return {
        "services": {"one": fork_server.service(UPSTREAMS / "conformance.py", "--era", "legacy")}
    }


async def test_instructions_are_ours_and_those_of_the_services(
    client: Client, gateway: Gateway
) -> None:
    await gateway.probes.ready()
    assert "session_create" in str(client.instructions)
    assert f"one: {CONFORMANCE}" in instructions(gateway, is_pinned=False)


@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_a_pinned_url_has_the_instructions_and_addresses_of_its_one_service(
    server: Running, config_file: Path, tmp_path: Path, era: Any
) -> None:
    way = Way("http", era, config_file, tmp_path)
    way.url = server.url
    async with way.connect(f"/s/introduced-{era}/mcp") as client:
        await client.list_tools()
    async with way.connect(f"/s/introduced-{era}/mcp") as client:
        assert client.instructions == CONFORMANCE
        capabilities = client.server_capabilities
        assert capabilities is not None
        assert capabilities.resources is not None
        assert capabilities.resources.subscribe
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "test://static-text" in uris
        templates = (await client.list_resource_templates()).resource_templates
        described = [(t.uri_template, t.name, t.title, t.mime_type) for t in templates]
        wanted = ("test://template/{id}/data", "template-data", "Data by number")
        assert described == [(*wanted, "application/json")]
        read = (await client.read_resource("test://template/7/data")).contents[0]
        assert str(read.uri) == "test://template/7/data"
        ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        completed = await client.complete(ref, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]


def test_a_question_without_a_state_gets_none() -> None:
    question: JSON = {"resultType": "input_required", "inputRequests": {}}
    assert mark_request_state(question) == question
    assert mark_request_state({**question, "requestState": ""})["requestState"] == "up:"


@pytest.mark.parametrize(
    ("declared", "mode", "supported"),
    [
        ({}, "form", True),
        ({}, "url", False),
        ({"form": {}}, "url", False),
        ({"url": {}}, "form", False),
        ({"url": {}}, "url", True),
    ],
)
def test_a_caller_is_asked_only_in_the_modes_that_it_declared(
    declared: JSON, mode: str, supported: bool
) -> None:
    assert can_elicit(declared, mode) == supported


def test_the_variables_of_a_template_stay_in_the_form_of_a_session() -> None:
    template = session_template("sh_1", "a b", "test://template/{id}/data")
    assert template == "session://sh_1/a%20b/test%3A%2F%2Ftemplate%2F{id}%2Fdata"
