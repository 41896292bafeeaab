"""The examples run as they are, by the one command that each of them names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from playwright.async_api import Page, async_playwright
from support.waiting import until

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.thorough
async def test_login_is_used_by_two_clients_of_two_eras(headless_shell: str, leaks: Any) -> None:
    example = "examples/browser_login.py"
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    with anyio.fail_after(55):
        done = await anyio.run_process([sys.executable, example], cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    output = done.stdout.decode()
    # The first call after the pause reports the restored content.
    assert "generation 1 to 2; it was paused). Restored: 1 tab, 1 cookie." in " ".join(
        output.split()
    )
    lines = [re.split(r"  +", line) for line in output.splitlines() if line[0] != " "]
    assert lines == [
        ["2026-07-28", "session_create"],
        ["2026-07-28", "browser_navigate"],
        ["2026-07-28", "browser_type"],
        ["2026-07-28", "browser_type", 'heading "Hello Ada"'],
        ["2026-07-28", "session_pause"],
        ["2025-11-25", "browser_snapshot", 'heading "Hello Ada"'],
        ["2025-11-25", "session_close"],
    ]
    await leaks.check()


async def said_by(example: str, *arguments: str) -> list[str]:
    """Run an example by the command that it names, and return the lines it prints."""
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    with anyio.fail_after(55):
        command = [sys.executable, example, *arguments]
        done = await anyio.run_process(command, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout.decode().splitlines()


@pytest.mark.thorough
async def test_an_agent_takes_a_picture_of_the_page_it_opened(
    headless_shell: str, tmp_path: Path, leaks: Any
) -> None:
    """The example runs offline, with a scripted model and a local page, and ends with a real PNG."""
    picture = tmp_path / "cart.png"
    output = await said_by("examples/langgraph_agent.py", str(picture))
    assert output[-2:] == ['"Shop: 2"', "There are two in the cart."]
    assert [line.partition(": ")[2] for line in output[:-2]] == ["success"] * 4
    image = picture.read_bytes()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(image) > 1000
    await leaks.check()


@pytest.mark.thorough
async def test_forked_browsers_have_the_login_and_bring_back_what_they_found(
    headless_shell: str, leaks: Any
) -> None:
    output = await said_by("examples/parallel_browsing.py")
    assert output == ["3 browsers, 0 conflicts", "{'tea': 3, 'milk': 1, 'honey': 7}"]
    await leaks.check()


class Lines:
    """The lines that a running example prints."""

    def __init__(self, output: TextReceiveStream) -> None:
        self._output = output
        self._text = ""

    async def find(self, pattern: str) -> str:
        """Return the first group of a line that comes, or came, and fits."""
        while True:
            found = re.search(pattern, self._text, re.M)
            if found is not None:
                return found[1]
            self._text += await self._output.receive()


async def places_of_fields(page: Page, address: str) -> list[tuple[float, float]]:
    """Return the middle of each field and of the button of the bank, in the viewport of the agent's browser."""
    await page.set_viewport_size({"width": 1280, "height": 720})
    await page.goto(address)
    boxes: list[Any] = [
        await each.bounding_box() for each in await page.locator("input, button").all()
    ]
    return [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]


async def tap(page: Page, place: tuple[float, float]) -> None:
    """Tap in the picture on a place of the page that it shows."""
    box: Any = await page.locator("sh-screen canvas").bounding_box()
    scale = min(box["width"] / 1280, box["height"] / 720)
    left = box["x"] + (box["width"] - 1280 * scale) / 2
    top = box["y"] + (box["height"] - 720 * scale) / 2
    await page.touchscreen.tap(left + place[0] * scale, top + place[1] * scale)


def edge_of(field: tuple[float, float]) -> tuple[float, float]:
    """Return the right edge of a field or button, where nothing else of the bank is."""
    return field[0] + 348, field[1]


async def is_blank(page: Page, place: tuple[float, float]) -> bool:
    """Whether the picture has the background of the bank around a place."""
    least = await page.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector("sh-screen canvas");
            const scale = canvas.width / 1280;
            const part = [(x - 4) * scale, (y - 4) * scale, 8 * scale, 8 * scale].map(Math.round);
            return Math.min(...canvas.getContext("2d").getImageData(...part).data);
        }""",
        list(place),
    )
    return least > 240


async def has_border(page: Page, place: tuple[float, float]) -> bool:
    """Whether the picture has something other than the background of the bank around a place."""
    return not await is_blank(page, place)


@pytest.mark.thorough
async def test_a_person_with_a_phone_logs_in_for_the_agent(
    headless_shell: str, tmp_path: Path, leaks: Any
) -> None:
    example, data = "examples/human_login.py", tmp_path / "data"
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    async with (
        async_playwright() as playwright,
        await anyio.open_process(
            [sys.executable, example, str(data)], cwd=ROOT, env=environment, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        lines = Lines(TextReceiveStream(process.stdout))
        browser = await playwright.chromium.launch(executable_path=headless_shell)
        with anyio.fail_after(100):
            site = await lines.find(r"^The bank is at (\S+)$")
            name, password, button = await places_of_fields(await browser.new_page(), site)
            viewport: Any = {"width": 390, "height": 844}
            phone = await browser.new_page(
                viewport=viewport, device_scale_factor=3, has_touch=True, is_mobile=True
            )
            await phone.goto(await lines.find(r"^Take over, within two minutes: (\S+)$"))
            await phone.get_by_text("Log in to the bank").first.wait_for()
            await phone.get_by_text("You have control.").wait_for()
            # Taps count once the person sees the page.
            await until(lambda: has_border(phone, edge_of(name)))
            await tap(phone, name)
            await phone.keyboard.type("ada")
            await tap(phone, password)
            await phone.keyboard.type("correct horse battery")
            await tap(phone, button)
            code = await lines.find(r"phone shows the code (\d{6})$")
            await until(lambda: is_blank(phone, edge_of(button)))
            # The field for the code is where that for the name was.
            await tap(phone, name)
            await phone.keyboard.type(code)
            await phone.keyboard.press("Enter")
            await until(lambda: is_blank(phone, edge_of(name)))
            await phone.get_by_role("button", name="Done").tap()
            assert await lines.find(r"^The agent goes on; you said: (\w+)$") == "done"
            assert await lines.find(r"^Balance: (.+)$") == "1,204.50 EUR"
            assert await process.wait() == 0
        await browser.close()
    contents = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    assert contents
    for content in contents:
        assert b"correct horse" not in content
        assert b"correct%20horse" not in content
        assert b"correct+horse" not in content
        # A page that is saved while a text stands in a field has it there.
        others = content.replace(rb"\"state\":\"%s\"" % code.encode(), b"")
        assert re.search(rb"(?<![\d.])%s(?!\d)" % code.encode(), others) is None
    await leaks.check()
