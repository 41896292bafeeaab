"""The site of the browser tests works in a real browser, so a failure elsewhere is not its fault."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import lab_pages
import pytest
from lab import Lab
from playwright.async_api import Browser, Page, async_playwright

pytestmark = [pytest.mark.peer, pytest.mark.thorough]


@pytest.fixture(scope="module")
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        sandbox = os.geteuid() != 0
        launched = await playwright.chromium.launch(
            executable_path=headless_shell, chromium_sandbox=sandbox
        )
        yield launched
        await launched.close()


@pytest.fixture
async def page(browser: Browser, lab_site: Lab) -> AsyncGenerator[Page]:
    context = await browser.new_context(base_url=lab_site.url)
    yield await context.new_page()
    await context.close()


async def test_every_page_loads_without_an_error(page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
    for path, (title, _) in lab_pages.PAGES.items():
        response = await page.goto(path)
        assert response is not None
        assert response.status == 200
        if path != "/routes":
            assert await page.title() == f"{title} - Lab"
    assert errors == []


async def test_form_upload_and_chooser_say_what_they_got(page: Page) -> None:
    await page.goto("/form")
    await page.get_by_label("First name").fill("Ada")
    await page.get_by_label("Last name").fill("Lovelace")
    await page.get_by_label("I accept the terms").check()
    await page.get_by_role("button", name="Send").click()
    assert "Lovelace" in await page.locator("dl").inner_text()
    await page.goto("/upload")
    payload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"}
    await page.get_by_label("Files").set_input_files(payload)  # pyright: ignore[reportArgumentType]
    await page.get_by_role("button", name="Upload").click()
    assert "5 bytes" in await page.locator("dl").inner_text()
    await page.goto("/chooser")
    async with page.expect_file_chooser() as chosen:
        await page.get_by_role("button", name="Choose files").click()
    await (await chosen.value).set_files(payload)  # pyright: ignore[reportArgumentType]
    assert await page.get_by_role("status").inner_text() == "notes.txt: 5 bytes"


async def test_four_logins_are_kept_apart_and_shown(page: Page) -> None:
    await page.goto("/logins/enter?name=eve")
    for way in ("cookie", "localStorage", "sessionStorage", "IndexedDB"):
        await page.get_by_label("Name").fill(f"by{way}")
        await page.get_by_role("button", name=f"By {way}", exact=True).click()
    await page.locator("#indexed", has_text="byIndexedDB").wait_for()
    await page.reload()
    await page.locator("[data-shown]").wait_for()
    shown = await page.locator("dd").all_inner_texts()
    assert shown == ["bycookie", "eve", "bylocalStorage", "bysessionStorage", "byIndexedDB"]


async def test_a_gate_holds_an_answer_until_it_is_opened(page: Page, lab_site: Lab) -> None:
    await page.goto("/slow")
    await page.get_by_role("button", name="Fetch for ever").click()
    assert await page.get_by_role("status").inner_text() == "loading"
    lab_site.open("fetch")
    await page.get_by_text("loaded through the gate").wait_for()
    assert "GET 127.0.0.1/api/gate/fetch" in lab_site.hits


async def test_the_second_half_of_a_slow_file_waits(page: Page, lab_site: Lab) -> None:
    await page.goto("/downloads")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Slow file").click()
    download = await started.value
    assert download.suggested_filename == "slow.txt"
    lab_site.open("download")
    assert (await download.path()).read_text() == "the slow file\n"


async def test_frames_sockets_workers_and_routes_work(page: Page, lab_site: Lab) -> None:
    await page.goto("/iframes")
    far = page.frame_locator('iframe[title="far"]')
    await far.get_by_label("Word").fill("ahoy")
    await far.get_by_role("button", name="Tell").click()
    assert await far.get_by_role("status").inner_text() == "heard ahoy"
    assert any(hit.startswith("GET 127.0.0.2/") for hit in lab_site.hits)
    await page.goto("/socket")
    await page.get_by_text("open", exact=True).wait_for()
    await page.get_by_role("button", name="Send").click()
    await page.get_by_text("echo hello").wait_for()
    await page.goto("/worker")
    await page.get_by_text("ready").wait_for()
    await page.reload()
    await page.get_by_text("ready").wait_for()
    await page.get_by_role("button", name="Ask").click()
    await page.get_by_text("answered by the worker").wait_for()
    await page.goto("/routes")
    await page.get_by_role("link", name="Detail").click()
    assert page.url == f"{lab_site.url}/routes/detail?id=7"
    await page.reload()
    assert "View detail" in await page.locator("#view").inner_text()


async def test_hover_drag_and_scroll_do_what_they_say(page: Page) -> None:
    await page.goto("/hover")
    await page.get_by_role("button", name="Menu").hover()
    await page.get_by_role("link", name="Second").click()
    assert await page.title() == "Frame second - Lab"
    await page.goto("/drag")
    await page.get_by_label("Parcel").drag_to(page.get_by_label("Shelf"))
    assert await page.get_by_role("status").inner_text() == "dropped parcel"
    await page.goto("/scroll")
    await page.get_by_text("Item 20", exact=True).wait_for()
    await page.locator("#end").scroll_into_view_if_needed()
    await page.get_by_text("Item 21", exact=True).wait_for()


async def test_a_large_page_has_as_many_refs_as_asked_for(page: Page) -> None:
    await page.goto("/many?refs=40")
    assert await page.get_by_role("button").count() == 20
    assert await page.get_by_role("link").count() == 20


def test_it_starts_by_itself_and_ends_when_asked() -> None:
    program = Path(lab_pages.__file__).with_name("lab.py")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"port": ')
        process.terminate()
        process.wait(5)
