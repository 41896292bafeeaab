"""Every page and state of the console passes the checks of axe-core, light and dark, wide and as narrow as a phone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, Literal

import pytest
from lab import Lab
from playwright.async_api import Browser, ViewportSize
from support.agent import Agent, agent
from support.console_client import console_address
from support.console_states import fill, states, take_picture
from support.gateway_process import JSON, Running, Way, service

AXE: Final = Path(__file__).parents[1] / "peers" / "node_modules" / "axe-core" / "axe.min.js"
WIDE: Final[ViewportSize] = {"width": 1440, "height": 900}
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
TABLET: Final[ViewportSize] = {"width": 800, "height": 1000}
LOOKS: Final[tuple[tuple[Literal["light", "dark"], ViewportSize], ...]] = (
    ("light", PHONE),
    ("dark", TABLET),
    ("light", WIDE),
)
"""The colours and sizes in which each state is checked; it is reached in the last one."""
BUY, WRITE = {"purpose": "Buy notebooks for the workshop"}, {"purpose": "Write chapter 3"}
CHECK: Final = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
    rule => `${rule.id}: ${rule.nodes.map(node => node.html.slice(0, 160)).join(" | ")}`)"""
OVERFLOW: Final = (
    "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
)


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True}
    return {
        "services": {"browser": browser, "quick": service("asking")},
        "server": {"embed_origins": ["https://dash.example.org"]},
    }


@pytest.fixture(scope="module")
async def agents(server: Running, config_file: Path) -> AsyncGenerator[tuple[Agent, Agent, Agent]]:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    with Lab() as site:
        async with (
            agent(way, name="checkout", services=["browser"], metadata=BUY) as shop,
            agent(way, name="notes", services=["quick"], metadata=WRITE) as notes,
            agent(way, name="fresh", services=["browser"]) as fresh,
        ):
            await fill(shop, notes, f"{site.url}/counter")
            yield shop, notes, fresh


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_every_state_of_the_page_passes_the_checks_of_accessibility(
    server: Running, agents: tuple[Agent, Agent, Agent], browser: Browser
) -> None:
    context = await browser.new_context(viewport=WIDE, color_scheme="light")
    page = await context.new_page()
    found: dict[str, list[str]] = {}
    async for state in states(page, console_address(server.data), *agents):
        if not await page.evaluate("'axe' in window"):
            await page.evaluate(AXE.read_text())
        for scheme, size in LOOKS:
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size(size)
            problems: list[str] = await page.evaluate(CHECK)
            if await page.evaluate(OVERFLOW) > 0:
                problems.append("scrolls sideways")
            if problems:
                found[f"{state}, {scheme}, {size['width']}"] = problems
            await take_picture(page, state)
    assert found == {}
    await context.close()
