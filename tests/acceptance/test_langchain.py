"""langchain-mcp-adapters 0.3.2 as it is released, in an environment of its own: a new MCP connection for every tool call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from support.gateway_process import JSON, Running

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

LangChain = Callable[[JSON], Awaitable[JSON]]


@pytest.fixture(scope="module")
def settings(counter_command: list[str]) -> JSON:
    """The counting server alone."""
    return {"services": {"counter": {"command": counter_command[0], "args": counter_command[1:]}}}


def servers(url: str) -> JSON:
    return {"counter": {"transport": "streamable_http", "url": url}}


def counts(answer: JSON) -> list[int]:
    return [result["artifact"]["structured_content"]["count"] for result in answer["results"]]


async def test_the_address_of_a_session_makes_every_call_count_on(
    server: Running, langchain: LangChain
) -> None:
    """The state survives calls that share only the address of the session."""
    url = f"{server.url}/s/chain/mcp"
    result = await langchain(
        {
            "servers": servers(url),
            "calls": [{"tool": "inc"}] * 3,
        }
    )
    assert result["version"] == "0.3.2"
    assert counts(result) == [1, 2, 3]
    # Another program continues where the first one ended.
    assert counts(await langchain({"servers": servers(url), "calls": [{"tool": "inc"}]})) == [4]
    assert "session_id" not in str(result["schemas"]["inc"])
    assert "session_create" not in result["tools"]
