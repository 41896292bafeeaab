"""The site builds without a warning, and a phone shows its diagrams and pictures without another host."""

from __future__ import annotations

import os
import re
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Request, ViewportSize, async_playwright
from support.page_server import serve_pages

ROOT = Path(__file__).resolve().parents[1]
PROBLEMS = """() => [
    ...[...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src),
    ...document.documentElement.scrollWidth > innerWidth ? ["scrolls sideways"] : [],
]"""
PHONE: ViewportSize = {"width": 390, "height": 844}


class SiteFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.peer
@pytest.mark.thorough
@pytest.mark.usefixtures("mermaid")
@pytest.mark.skipif(not shutil.which("uv"), reason="missing part: uv: Install uv.")
async def test_every_page_with_pictures_is_shown_whole_and_asks_no_other_host(
    headless_shell: str, tmp_path: Path
) -> None:
    with anyio.fail_after(90):
        built = await anyio.run_process([ROOT / ".ci" / "site", tmp_path], check=False)
    assert built.returncode == 0, (built.stdout + built.stderr).decode()
    site = tmp_path / "latest"
    pages = [
        path for path in site.rglob("*.md") if re.search(r"!\[|<img|```mermaid", path.read_text())
    ]
    found: list[str] = []
    with serve_pages(partial(SiteFiles, directory=tmp_path)) as origin:
        address = f"{origin}/"

        def note_other_host(request: Request) -> None:
            if not request.url.startswith((address, "data:", "blob:")):
                found.append(request.url)

        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=headless_shell, chromium_sandbox=os.geteuid() != 0
            )
            page = await browser.new_page(viewport=PHONE)
            page.on("request", note_other_host)
            page.on("pageerror", lambda error: found.append(str(error)))
            await page.goto(address)
            await page.wait_for_url(f"{address}latest/")
            for path in pages:
                await page.goto(f"{address}latest/{path.relative_to(site).with_suffix('.html')}")
                await page.wait_for_function("!document.querySelector('pre.mermaid')")
                found += [f"{path.name}: {each}" for each in await page.evaluate(PROBLEMS)]
            await browser.close()
    assert len(pages) > 4
    assert found == []
