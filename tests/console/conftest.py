"""A server with tokens, and people who are logged in at its console."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import Browser, async_playwright
from support.console_client import ConsoleClient, console_client, operator
from support.gateway_fixtures import *
from support.gateway_process import JSON, Running, Way, service
from support.token_file import write_tokens

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> JSON:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    write_tokens(path, f"{ALICE} alice\n{BEN} ben issuer=home\n")
    return {"server": {"tokens": str(path)}, "services": {"quick": service("asking")}}


@pytest.fixture(scope="module")
async def agent(server: Running, config_file: Path) -> AsyncGenerator[Client]:
    """Alice's agent, over MCP."""
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as client:
        yield client


@pytest.fixture
async def root(server: Running) -> AsyncGenerator[ConsoleClient]:
    """The user of the machine."""
    async with operator(server.data) as client:
        yield client


@pytest.fixture
async def alice(server: Running) -> AsyncGenerator[ConsoleClient]:
    async with console_client(server.url) as client:
        await client.log_in(token=ALICE)
        yield client


@pytest.fixture
def alice_token() -> str:
    """The token of Alice, for another login."""
    return ALICE


@pytest.fixture
def ben_token() -> str:
    return BEN


@pytest.fixture
async def ben(server: Running) -> AsyncGenerator[ConsoleClient]:
    async with console_client(server.url) as client:
        await client.log_in(token=BEN)
        yield client


@pytest.fixture
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    """The browser of a person."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=headless_shell)
        yield started
        await started.close()
