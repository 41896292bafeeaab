"""Completion, sessions of connections and pictures of a session that another process owns."""

from __future__ import annotations

from dataclasses import replace

import anyio
import mcp_types as types
import pytest
from support.fork_server import ForkServer
from support.gateway_process import (
    ASKS_SESSION,
    JSON,
    UPSTREAMS,
    meta_of,
    service,
    structured,
    text_of,
)
from support.pairs import Pair


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer, headless_shell: str) -> JSON:
    conformance = fork_server.service(UPSTREAMS / "conformance.py", "--era", "legacy")
    return {
        "server": {"auto_session": True},
        "services": {
            "one": conformance,
            "quick": service("quick"),
            "browser": {"executable": headless_shell},
        },
    }


@pytest.mark.thorough
async def test_an_argument_is_completed_in_the_session(pair: Pair) -> None:
    async with pair.edge.connect() as client:
        await client.list_tools()
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        prompt = prompts["test_prompt_with_arguments"]
        argument = next(a.name for a in prompt.arguments or [] if "session" in a.name)
        ref = types.PromptReference(type="ref/prompt", name=prompt.name)
        result = await client.complete(
            ref, {"name": "arg1", "value": "par"}, context_arguments={argument: pair.session}
        )
        assert result.completion.values == ["paris", "park", "party"]
        address = f"session://{pair.session}/one/test%3A%2F%2Ftemplate%2F{{id}}%2Fdata"
        template = types.ResourceTemplateReference(type="ref/resource", uri=address)
        result = await client.complete(template, {"name": "id", "value": "pa"})
        assert result.completion.values == ["paris", "park", "party"]


@pytest.mark.thorough
async def test_the_session_of_a_connection_may_move_to_another_process(pair: Pair) -> None:
    async with replace(pair.edge, era="legacy").connect() as client:
        info = structured(await client.call_tool("session_info", {}))
        session = {"session_id": info["session_id"]}
        await client.call_tool("session_pause", {})
        assert structured(await pair.client.call_tool("inc", session))["count"] == 1
        result = await client.call_tool("inc", {}, meta=ASKS_SESSION)
        assert structured(result)["count"] == 2
        assert meta_of(result)["statehold/session"]["id"] == info["session_id"]
        updated = await client.call_tool("state_update", {"values": {"a": 1}})
        assert structured(updated)["version"] == 1
        assert structured(await pair.client.call_tool("inc", session))["count"] == 3


@pytest.mark.thorough
async def test_a_page_is_driven_and_pictured_through_another_process(
    pair: Pair, login_site: str
) -> None:
    async with pair.edge.connect() as client:
        with anyio.fail_after(60):
            opened = await client.call_tool(
                "browser_navigate", {**pair.at, "url": f"{login_site}/login"}
            )
            assert not opened.is_error
            steps = {**pair.at, "function": "() => { window.steps = 41 }"}
            await pair.client.call_tool("browser_evaluate", steps)
            steps = {**pair.at, "function": "() => `steps: ${++window.steps}`"}
            assert "steps: 42" in text_of(await client.call_tool("browser_evaluate", steps))
            pictured = await client.call_tool("browser_take_screenshot", pair.at)
            here = await pair.client.call_tool("browser_take_screenshot", pair.at)
        pictures = [b for b in pictured.content if isinstance(b, types.ImageContent)]
        assert pictures
        assert pictures == [b for b in here.content if isinstance(b, types.ImageContent)]
