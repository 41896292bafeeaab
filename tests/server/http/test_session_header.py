"""The session as a header, which has to agree with the argument of the call."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import anyio
import httpx2
import pytest
from support.gateway_process import (
    Running,
    Way,
    count,
    modern_call,
    opened_session,
    service,
    serving,
    structured,
    toml,
)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("routed")
    config = folder / "statehold.toml"
    own = service("asking", "--own-session", include=["own_session"])
    services = {"counter": service("counter", exclude=["own_session"]), "own": own}
    config.write_text(toml({"services": services}))
    with serving(config, folder / "data", "--session-header") as running:
        yield running


async def test_a_session_header_has_to_match_the_argument(routed: Running, tmp_path: Path) -> None:
    way = Way("http", "modern", tmp_path, tmp_path, url=routed.url)
    async with way.connect() as client:
        session, other = await opened_session(client), await opened_session(client)
        # The SDK's client sends the header by itself, once it has seen the list.
        await client.list_tools()
        assert await count(client, session) == 1
        assert structured(await client.call_tool("session_info", {"session_id": session}))
    async with httpx2.AsyncClient(base_url=routed.url, timeout=60) as raw:
        for tool in ("inc", "session_info"):
            body, headers = modern_call(tool, {"session_id": session})
            for header in (other, None, ""):
                more = {} if header is None else {"mcp-param-session-id": header}
                answer = await raw.post("/mcp", json=body, headers={**headers, **more})
                assert answer.status_code == 400
                assert answer.json()["error"]["code"] == -32020
            right = {**headers, "mcp-param-session-id": session}
            answer = await raw.post("/mcp", json=body, headers=right)
            assert answer.status_code == 200
            assert "error" not in json.loads(_body(answer))
    # A legacy client knows nothing of it.
    way = Way("http", "legacy", tmp_path, tmp_path, url=routed.url)
    async with way.connect() as client:
        assert await count(client, session) == 3


@pytest.mark.thorough
async def test_a_pinned_url_needs_no_session_header(routed: Running, tmp_path: Path) -> None:
    way = Way("http", "modern", tmp_path, tmp_path, url=routed.url)
    async with way.connect("/s/routed/mcp") as client:
        await client.list_tools()
        with anyio.fail_after(20):
            assert structured(await client.call_tool("inc", {}))["count"] == 1
            own = await client.call_tool("own_session", {"session_id": "theirs"})
            assert structured(own) == {"session_id": "theirs"}


def _body(answer: httpx2.Response) -> str:
    if answer.headers["content-type"].startswith("text/event-stream"):
        return next(line[6:] for line in answer.text.splitlines() if line.startswith("data: "))
    return answer.text
