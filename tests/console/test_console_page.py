"""The page of the console in a real browser, while it watches another one: the picture, the takeover, the hand-back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from lab import Lab
from playwright.async_api import Browser, Page
from support.agent import agent
from support.console_client import console_address
from support.gateway_process import JSON, Running, Way
from support.waiting import until

PASSWORD = "correct horse battery"
LOGIN = (
    "document.title='Login';document.body.style='margin:0;background:rgb(0,128,0)';"
    'document.body.innerHTML=\'<input id=name style="position:absolute;left:100px;top:100px;width:200px;height:40px">'
    '<input id=password type=password style="position:absolute;left:100px;top:200px;width:200px;height:40px">\''
)
PIXEL = """([x, y]) => {
    const canvas = document.querySelector("sh-screen canvas");
    const place = [x / 1280 * canvas.width, y / 720 * canvas.height, 1, 1];
    return [...canvas.getContext("2d").getImageData(...place).data].slice(0, 3);
}"""


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    return {"services": {"browser": browser}}


DARKEST = """([x, y, width, height]) => {
    const canvas = document.querySelector("sh-screen canvas");
    const scale = canvas.width / 1280;
    const part = [x, y, width, height].map(number => Math.round(number * scale));
    return Math.min(...canvas.getContext("2d").getImageData(...part).data.filter((_, at) => at % 4 === 0));
}"""


async def open_console(browser: Browser, server: Running) -> tuple[Page, list[str]]:
    """Return the page after its login, and the errors that it reports."""
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    await page.goto(console_address(server.data))
    await page.get_by_role("button", name="Log out").wait_for()
    return page, errors


async def point_of(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return the place in the console of a place in the page that it shows, which is 1280 by 720."""
    box: Any = await page.locator("sh-screen canvas").bounding_box()
    scale = min(box["width"] / 1280, box["height"] / 720)
    left = box["x"] + (box["width"] - 1280 * scale) / 2
    top = box["y"] + (box["height"] - 720 * scale) / 2
    return left + x * scale, top + y * scale


async def test_a_person_sees_a_session_takes_over_types_and_hands_it_back(
    server: Running, config_file: Path, browser: Browser, lab_site: Lab
) -> None:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with agent(way, name="shop") as ada:
        await ada.said("browser_navigate", url=f"{lab_site.url}/counter")
        await ada.evaluate(LOGIN)
        page, errors = await open_console(browser, server)
        tile = page.get_by_role("link", name="shop")
        await tile.wait_for()
        assert "Agent" in await tile.inner_text()
        await tile.click()
        await page.get_by_role("button", name="Take over").click()
        await page.get_by_text("You have control.").wait_for()

        async def is_green() -> bool:
            red, green, _ = await page.evaluate(PIXEL, [900, 500])
            return green > 100 and red < 60

        await until(is_green)
        refused = await ada.failed("browser_snapshot")
        assert "human_in_control" in refused
        await page.mouse.click(*await point_of(page, 150, 120))
        await page.keyboard.type("Ada Löw")
        await page.mouse.click(*await point_of(page, 150, 220))
        await page.keyboard.type(PASSWORD)

        async def is_masked() -> bool:
            # The field has dots by now, which are dark.
            return await page.evaluate(DARKEST, [104, 208, 100, 26]) < 100

        await until(is_masked)
        await page.get_by_role("button", name="Reply …").click()
        await page.get_by_label("Reply to the agent").fill("the code was 12")
        await page.get_by_role("button", name="Done").click()
        await page.get_by_role("button", name="Take over").wait_for()
        answer = await ada.said("browser_snapshot")
        assert 'handed it back: done with the words "the code was 12"' in answer
        assert "Ada Löw" not in answer
        assert PASSWORD not in answer
        script = "() => [...document.querySelectorAll('input')].map(e => e.value.length)"
        assert str(len(PASSWORD)) in await ada.said("browser_evaluate", function=script)
        await page.get_by_text("handed back: done").wait_for()
        assert errors == []
    assert PASSWORD.encode() not in b"".join(
        path.read_bytes() for path in server.data.rglob("*") if path.is_file()
    )


async def test_the_page_shows_a_request_first_and_ends_with_the_login(
    server: Running, config_file: Path, browser: Browser
) -> None:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with agent(way, name="travel") as ada:
        page, _ = await open_console(browser, server)
        await ada.call("session_request_human", reason="Solve the captcha", wait_seconds=0)
        await page.get_by_text("Asks for a person").wait_for()
        await page.keyboard.press("/")
        await page.get_by_role("combobox", name="Name, purpose or id").fill("trvl")
        await page.keyboard.press("Enter")
        await page.get_by_text("The agent asks for a person: Solve the captcha").wait_for()
        await page.get_by_text(re.compile(r"asked .*, ends in \d+ min")).wait_for()
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_text("logs you in").wait_for()
        await page.reload()
        await page.get_by_text("logs you in").wait_for()


async def test_files_of_the_page_are_small_and_nothing_else_is_served(server: Running) -> None:
    base = console_address(server.data).partition("#")[0]
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        seen = {"": await client.get(base)}
        for name in ("app.js", "app.css", "render.js"):
            seen[name] = await client.get(f"{base}/{name}")
        for response in seen.values():
            assert response.status_code == 200
            assert "default-src 'none'" in response.headers["content-security-policy"]
        assert seen["app.js"].headers["content-type"].startswith("text/javascript")
        for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "vendor", "none.js"):
            assert (await client.get(f"{base}/{name}")).status_code == 404, name
    folder = anyio.Path(__file__).parents[2] / "console" / "static"
    files = [path async for path in folder.rglob("*") if await path.is_file()]
    sent = 0
    async with httpx2.AsyncClient(base_url=f"{base}/") as client:
        for path in files:
            name = path.relative_to(folder).as_posix()
            async with client.stream("GET", name, headers={"accept-encoding": "gzip"}) as response:
                sent += sum([len(part) async for part in response.aiter_raw()])
    assert sum([(await path.stat()).st_size for path in files]) < 250_000
    assert 20_000 < sent < 90_000
