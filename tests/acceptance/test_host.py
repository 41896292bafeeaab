"""A host in a real browser: the page of an MCP App is shown and calls its server, and every file of a skill is verified."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect
from support.gateway_process import JSON, service, serving, toml
from support.page_server import serve_pages

pytestmark = [pytest.mark.peer, pytest.mark.thorough]


class Files(SimpleHTTPRequestHandler):
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, format: str, *args: object) -> None: ...


@asynccontextmanager
async def host_page(npm_peers: Path, headless_shell: str) -> AsyncGenerator[Page]:
    with serve_pages(partial(Files, directory=str(npm_peers.parent))) as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=headless_shell)
            page = await browser.new_page()
            await page.goto(f"{address}/host.html")
            await page.wait_for_function("() => 'readSkills' in window")
            yield page
            await browser.close()


def write_config(folder: Path, services: JSON) -> Path:
    path = folder / "statehold.toml"
    path.write_text(toml({"services": services}))
    return path


async def test_the_page_of_an_app_is_shown_and_calls_its_tool(
    tmp_path: Path, npm_peers: Path, headless_shell: str
) -> None:
    program = npm_peers / "@modelcontextprotocol/server-basic-vanillajs/dist/index.js"
    config = write_config(
        tmp_path, {"time": {"command": "node", "args": [str(program), "--stdio"]}}
    )
    with serving(config, tmp_path / "data") as running:
        async with host_page(npm_peers, headless_shell) as page:
            result = await page.evaluate("url => showApp(url)", f"{running.url}/s/app/mcp")
            app = page.frames[-1]
            shown = app.locator("body")
            await expect(shown).to_contain_text(result)
            await app.get_by_role("button", name="Get Server Time").click()
            await expect(shown).not_to_contain_text(result)


async def test_a_host_verifies_every_file_of_every_skill(
    tmp_path: Path, npm_peers: Path, headless_shell: str
) -> None:
    services = {
        name: service("skilled", "--text", name, prefix=f"{name}_") for name in ("one", "two")
    }
    with serving(write_config(tmp_path, services), tmp_path / "data") as running:
        async with host_page(npm_peers, headless_shell) as page:
            read = await page.evaluate("url => readSkills(url)", f"{running.url}/mcp")
    assert len(read) == 5
    assert all(is_verified for _, is_verified in read)
