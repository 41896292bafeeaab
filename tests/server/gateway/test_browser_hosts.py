"""The hosts that a policy allows a caller, in a real browser, while the policy changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from lab import Lab
from support.agent import Agent
from support.gateway_process import JSON, Running, Way, opened_session, text_of, toml
from support.token_file import write_tokens
from support.waiting import until

TOKEN = "a-token-of-the-tests-0123456789"
WAYS: list[tuple[str, str]] = []


@pytest.fixture(scope="module")
def settings(headless_shell: str, tmp_path_factory: pytest.TempPathFactory) -> JSON:
    tokens = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", f"{TOKEN} ada\n")
    return {
        "server": {"tokens": str(tokens)},
        "services": {"browser": {"executable": headless_shell, "private": True}},
        "policies": [{"browser_hosts": ["*.example.org"]}],
    }


@pytest.fixture
async def ada(server: Running, config_file: Path) -> AsyncGenerator[Agent]:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with way.connect(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        yield Agent(client, await opened_session(client))


async def test_a_page_reaches_the_hosts_of_the_policy_only(
    ada: Agent, settings: JSON, config_file: Path, lab_site: Lab
) -> None:
    address = f"127.0.0.1:{lab_site.port}"
    why = f"{address} is not among the hosts that the caller may reach"
    assert why in text_of(await ada.call("browser_navigate", url=f"http://{address}/dialogs"))
    rule = {"match": {"principal": "ada"}, "browser_hosts": [address]}
    await anyio.Path(config_file).write_text(
        toml({**settings, "policies": [*settings["policies"], rule]})
    )

    async def is_reached() -> bool:
        result = await ada.call("browser_navigate", url=f"http://{address}/dialogs")
        return why not in text_of(result)

    await until(is_reached)
    other = lab_site.other.replace(str(lab_site.port), "8080")
    refused = text_of(await ada.call("browser_navigate", url=f"{other}/dialogs"))
    assert "is not among the hosts that the caller may reach" in refused
