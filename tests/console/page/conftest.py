"""A gateway in this process with its console on a port, an agent with a browser, and a person who has control of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest
from lab import Lab
from playwright.async_api import Browser, Page, async_playwright
from support.agent import Agent, agent
from support.console_page import ConsolePage, browser_of, opened_console, page_of
from support.gateway_process import JSON, Way

from statehold.console.app import Console
from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    return {"services": {"browser": browser}}


@pytest.fixture(scope="module")
def console(gateway: Gateway) -> Console:
    return Console(gateway)


@pytest.fixture(scope="module")
async def url(gateway: Gateway, console: Console) -> AsyncGenerator[str]:
    async with console.port() as port:
        yield await port.url()


@pytest.fixture(scope="module")
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    """The browser of people."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=headless_shell)
        yield started
        await started.close()


@pytest.fixture(scope="module")
def site() -> Generator[Lab]:
    with Lab() as lab:
        yield lab


@pytest.fixture(scope="module")
async def ada(gateway: Gateway, mcp_server: StateholdServer) -> AsyncGenerator[Agent]:
    """The agent of the module, with an open page."""
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way, name="shop") as opened:
        await opened.said("browser_navigate", url="about:blank")
        yield opened


@pytest.fixture(scope="module")
async def shared_console(
    browser: Browser, url: str, console: Console, ada: Agent
) -> AsyncGenerator[ConsolePage]:
    async with opened_console(browser, url, console, ada.session) as opened:
        yield opened


@pytest.fixture
async def eve(
    shared_console: ConsolePage, gateway: Gateway, ada: Agent
) -> AsyncGenerator[ConsolePage]:
    """A person who has control, in the window that the module shares."""
    if await shared_console.page.get_by_text("You have control.").count() == 0:
        await shared_console.take()
    yield shared_console
    assert shared_console.errors == []


@pytest.fixture
def watched(gateway: Gateway, ada: Agent) -> Page:
    """The page of the agent."""
    browser_of(gateway, ada.session)
    return page_of(gateway, ada.session)
