"""An open page outlives the client that opened it."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import pytest
from support.gateway_process import JSON, text_of
from support.piped import Pipes
from support.shared_clients import SharedClients

PIN = ("--session", "page")


@pytest.fixture
def settings(headless_shell: str) -> JSON:
    return {"services": {"browser": {"executable": headless_shell}}}


async def text_in(pipes: Pipes, number: int, tool: str, **arguments: Any) -> str:
    return "\n".join(
        block.get("text", "") for block in (await pipes.tool(number, tool, **arguments))["content"]
    )


@pytest.mark.thorough
async def test_a_page_is_the_same_after_its_client_was_killed(
    shared: SharedClients, login_site: str
) -> None:
    async with shared.piped(*PIN) as killed:
        await killed.tool(1, "browser_navigate", url=f"{login_site}/login")
        await killed.tool(2, "browser_evaluate", function="() => { window.steps = 41 }")
        killed.process.send_signal(signal.SIGKILL)
        await killed.process.wait()
    async with shared.connect(*PIN) as client:
        with anyio.fail_after(60):
            function = "() => `steps: ${++window.steps}`"
            text = text_of(await client.call_tool("browser_evaluate", {"function": function}))
    assert "steps: 42" in text
    assert "was replaced" not in text
