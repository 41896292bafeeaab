"""Sites see the user agent and client hints of the same browser with a window, whatever the browser and the context."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright
from probes import Probes
from support.browsing import Browse, opened, process_of, running
from support.listening import run_until_line
from support.screen import Screen

from statehold.tools.browser.process.user_agent import user_agent
from statehold.tools.browser.service import BrowserService

DESCRIBED = ("userAgent", "languages", "brands", "hints")
CONTEXTS = ("worker", "serviceWorker", "frame", "popup")
EQUAL = (
    *DESCRIBED,
    *CONTEXTS,
    "webdriver",
    "platform",
    "vendor",
    "touchPoints",
    "hover",
    "locale",
    "windowFitsScreen",
)
"""The probes whose answers equal those of a browser with a window; docs/reference/browser.md lists what differs."""


@pytest.fixture
def probes() -> Generator[Probes]:
    with Probes() as site:
        yield site


async def probe(site: Probes, data: Path, executable: str, **settings: Any) -> dict[str, Any]:
    """Return what the page of probes finds out about a browser of ours, with the headers of its requests."""
    site.headers.clear()
    async with running(data, executable, **settings) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{site.at(1)}/")
        return {**await browse.value(site.script), "headers": dict(site.headers)}


@asynccontextmanager
async def windowed(screen: Screen, executable: str, profile: Path) -> AsyncGenerator[Any]:
    """The page of a browser with a window that was started without Playwright."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # With port 0, the browser counts as automated.
    options = ["--no-sandbox", "--no-first-run", f"--remote-debugging-port={port}"]
    command = ["env", f"DISPLAY={screen.display}", executable, *options]
    # Playwright waits for the pages that it finds, and the browser's own first page may be a while coming.
    command += [f"--user-data-dir={profile}", "about:blank"]
    with run_until_line(command, "listening on ") as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.connect_over_cdp(address, no_defaults=True)
            yield await browser.contexts[0].new_page()


@pytest.mark.thorough
async def test_pages_see_the_same_as_in_a_browser_with_a_window(
    probes: Probes, tmp_path: Path, shell: str, whole: str, screen: Screen
) -> None:
    async with windowed(screen, whole, tmp_path / "profile") as page:
        await page.goto(f"{probes.at(1)}/")
        expected = await page.evaluate(probes.script)
        headers = dict(probes.headers)
    assert expected["userAgent"].startswith("Mozilla/5.0")
    for executable in (shell, whole):
        answers = await probe(probes, tmp_path / "data", executable)
        assert {name: answers[name] for name in EQUAL} == {name: expected[name] for name in EQUAL}
        assert answers["headers"].keys() == headers.keys()
        for path in headers:
            assert _but_weights(answers["headers"][path]) == _but_weights(headers[path]), path
        assert answers["headers"]["/"] == headers["/"]
        assert answers["headers"]["/popup"] == headers["/popup"]
        # Playwright does not attach to shared workers, so only flags apply to them.
        assert answers["sharedWorker"]["userAgent"] == expected["userAgent"]
        assert "Headless" not in json.dumps(answers)


def _but_weights(headers: dict[str, str]) -> dict[str, str]:
    """A headless shell sends the languages without weights with the script of a service worker."""
    return {name: value.replace(";q=0.9", "") for name, value in headers.items()}


async def test_pages_of_a_headless_browser_see_one_with_a_window(
    service: BrowserService, browse: Browse, probes: Probes
) -> None:
    await browse.text("navigate", url=f"{probes.at(1)}/")
    answers = await browse.value(probes.script)
    version = process_of(browse).browser.version
    assert answers["userAgent"] == user_agent(version)
    assert probes.headers["/"]["user-agent"] == user_agent(version)
    assert all(
        {name: answers[context][name] for name in DESCRIBED}
        == {name: answers[name] for name in DESCRIBED}
        for context in CONTEXTS
    )
    assert not answers["webdriver"]
    assert "Headless" not in json.dumps([answers, probes.headers])


@pytest.mark.thorough
async def test_a_configured_user_agent_device_and_locale_win(
    probes: Probes, tmp_path: Path, shell: str
) -> None:
    other = user_agent("120.0.6099.109").replace("X11; Linux x86_64", "Windows NT 10.0; Win64; x64")
    answers = await probe(probes, tmp_path, shell, user_agent=other, locale="de-DE")
    assert answers["userAgent"] == answers["headers"]["/service-worker.js"]["user-agent"] == other
    assert {"brand": "Chromium", "version": "120"} in answers["brands"]
    assert answers["hints"]["platform"] == "Windows"
    assert answers["languages"] == ["de-DE"]
    assert answers["headers"]["/"]["accept-language"] == "de-DE"
    assert all(
        {name: answers[where][name] for name in DESCRIBED}
        == {name: answers[name] for name in DESCRIBED}
        for where in CONTEXTS
    )
    phone = await probe(probes, tmp_path, shell, mobile=True, device_scale_factor=2)
    assert re.search("Android .* Mobile ", phone["userAgent"])
    assert (phone["hints"]["mobile"], phone["hints"]["platform"]) == (True, "Android")
    assert (phone["touchPoints"], phone["hover"], phone["pixelRatio"]) == (1, False, 2)
    assert "Headless" not in json.dumps([answers, phone])
