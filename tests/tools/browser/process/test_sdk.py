"""The private parts of Playwright that Statehold uses; each test names the feature that breaks without its part."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Generator
from pathlib import Path
from weakref import ref

import anyio
import pytest
from playwright.async_api import Browser, async_playwright
from support.browsing import Browse, process_of

from statehold.tools.browser.devtools.sdk import (
    artifact_of,
    driver_command,
    driver_environment,
    guid_of,
)
from statehold.tools.browser.devtools.world import send_command
from statehold.tools.browser.process.driver import Driver


@pytest.mark.thorough
def test_the_driver_runs_on_the_node_that_comes_with_playwright() -> None:
    """Without it no browser starts, and `browser_find` and `browser_run_code_unsafe` have no node."""
    node, program = driver_command()
    done = subprocess.run([node, program, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Version ")


def test_the_driver_has_the_environment_that_playwright_gives_it() -> None:
    assert "PW_LANG_NAME" in driver_environment()


async def test_a_page_has_the_id_by_which_the_driver_knows_it(browser: Browser) -> None:
    """Without it `browser_run_code_unsafe` does not find its page."""
    page = await browser.new_page()
    try:
        assert guid_of(page).startswith("page@")
    finally:
        await page.close()


async def test_a_download_has_a_file_on_the_disk(browser: Browser) -> None:
    """Without it downloads are not bounded while they arrive."""
    page = await browser.new_page()
    try:
        await page.set_content('<a download="x.txt" href="data:text/plain,hello">x</a>')
        with anyio.fail_after(20):
            async with page.expect_download() as expected:
                await page.click("a")
            artifact = artifact_of(await expected.value)
        assert artifact._initializer["absolutePath"]
        assert await artifact.create_read_stream()
    finally:
        await page.close()


class Local:
    """A local variable of a function that calls Playwright."""


async def call_playwright(driver: Driver) -> ref[Local]:
    local = Local()
    context = await driver.playwright.request.new_context()
    await context.dispose()
    return ref(local)


@pytest.fixture
def no_garbage_collection() -> Generator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_a_call_keeps_no_local_variable_of_its_callers(
    tmp_path: Path, no_garbage_collection: None
) -> None:
    """Without it each call keeps its callers in memory until a full garbage collection."""
    driver = await Driver.start(tmp_path)
    try:
        local = await call_playwright(driver)
        assert local() is None
    finally:
        await driver.aclose()


async def test_the_devtools_sessions_of_a_server_that_is_gone_end_with_the_next_one(
    browse: Browse, lab: str
) -> None:
    host = process_of(browse).host
    assert host is not None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect(host.address.endpoint)
        session = await browser.new_browser_cdp_session()
        await send_command(session, "Fetch.enable", {"patterns": [{"urlPattern": f"{lab}/*"}]})
        await browser.close()
    # It would pause all requests to the site, which nobody continues.
    browser = process_of(browse).browser
    await (await browser.new_browser_cdp_session()).detach()
    await browse.text("navigate", url=f"{lab}/")
