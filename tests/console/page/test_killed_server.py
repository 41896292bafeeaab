"""The server is killed while a person has control: controller and epoch survive, and the person goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser
from support.agent import agent
from support.console_client import console_address
from support.console_page import ConsolePage
from support.gateway_process import JSON, Way, kill, serving, toml
from support.waiting import until


@pytest.mark.thorough
async def test_a_person_goes_on_after_the_server_was_killed(
    browser: Browser, settings: JSON, tmp_path: Path
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(settings))
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    window = ConsolePage(await context.new_page())
    page = window.page
    with serving(config, data) as first:
        way = Way("http", "modern", config, data, url=first.url)
        async with agent(way) as ada:
            await ada.said("browser_navigate", url="data:text/html,<body bgcolor=red>")
            await page.goto(console_address(data))
            await page.get_by_role("button", name="Log out").wait_for()
            await window.open_session(ada.session)
            await window.take()
            await page.keyboard.press("a")
            session = ada.session
        port = first.url.rpartition(":")[2]
        kill(first)
        await page.keyboard.press("b")
        await page.get_by_text("No connection").first.wait_for()
    with serving(config, data, "--port", port) as second:
        way = Way("http", "modern", config, data, url=second.url)
        async with agent(way, session) as ada:
            assert "human_in_control" in await ada.failed("browser_snapshot")

            async def has_control() -> bool:
                return await page.get_by_text("The agent waits.").count() == 1

            await until(has_control)
            await window.find()
            await window.give_back()
            assert "handed it back: done" in await ada.said("browser_snapshot")
    await context.close()
