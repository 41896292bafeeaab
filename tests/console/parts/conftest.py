"""A server, an agent of its user, and the page of the console."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import Browser, Page
from support.console_client import console_address
from support.console_page import console
from support.gateway_process import JSON, Running, Way, service


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True}
    return {"services": {"browser": browser, "quick": service("asking")}}


@pytest.fixture(scope="module")
async def agent(server: Running, config_file: Path) -> AsyncGenerator[Client]:
    async with Way("http", "modern", config_file, server.data, url=server.url).connect() as client:
        yield client


@pytest.fixture
async def page(server: Running, browser: Browser) -> AsyncGenerator[Page]:
    async with console(browser, console_address(server.data)) as opened:
        yield opened
