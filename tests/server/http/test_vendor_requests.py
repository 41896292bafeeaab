"""Methods of vendors and skills over HTTP: other callers, callers with policies, and other processes."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from support.gateway_process import JSON, Running, Way, service, serving, structured, toml
from support.raw_requests import send
from support.selection import matrix
from support.token_file import write_tokens

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("guarded")
    write_tokens(folder / "tokens", f"{ALICE} alice\n{BEN} ben\n")
    settings: JSON = {
        "server": {"tokens": "tokens"},
        "services": {"one": service("skilled", "--text", "one")},
    }
    policies = '[[policies]]\nmatch = { principal = "ben" }\nservices = []\n'
    (folder / "statehold.toml").write_text(toml(settings) + policies)
    with serving(folder / "statehold.toml", folder / "data") as running:
        yield running


@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_no_other_caller_reaches_the_method_of_a_session(
    guarded: Running, tmp_path: Path, era: Any
) -> None:
    way = Way("http", era, tmp_path / "none", tmp_path)
    way.url = guarded.url
    alice, ben = ({"authorization": f"Bearer {token}"} for token in (ALICE, BEN))
    async with way.connect("/s/work/mcp", headers=alice) as client:
        before = (await send(client, "example/count"))["count"]
    async with way.connect(headers=alice) as client:
        (session,) = structured(await client.call_tool("session_list", {}))["sessions"]
    for name in ("work", session["session_id"]):
        async with way.connect(f"/s/{name}/mcp", headers=ben) as client:
            with pytest.raises(MCPError):
                await send(client, "example/count")
    async with way.connect("/s/work/mcp", headers=alice) as client:
        assert (await send(client, "example/count"))["count"] == before + 1


async def test_a_caller_sees_skills_of_the_services_that_it_may_use(
    guarded: Running, tmp_path: Path
) -> None:
    way = Way("http", "modern", tmp_path / "none", tmp_path)
    way.url = guarded.url
    found: list[int] = []
    uri = "skill://one/refunds/SKILL.md"
    for token in (ALICE, BEN):
        headers = {"authorization": f"Bearer {token}"}
        async with way.connect(headers=headers) as client:
            found.append(len((await send(client, "skills/list"))["skills"]))
            if token == ALICE:
                assert (await client.read_resource(uri)).contents
            else:
                for method in ("skills/get", "resources/read"):
                    with pytest.raises(MCPError) as raised:
                        await send(client, method, uri=uri)
                    assert raised.value.error.code == types.INVALID_PARAMS
    assert found == [3, 1]
