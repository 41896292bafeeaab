"""The pictures of the README and of docs/ can be drawn, and are small and wide enough to be read."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.async_api import Page, async_playwright
from support.console_states import PICTURES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DIAGRAMS = [
    pytest.param(diagram, id=f"{path.stem}-{number}")
    for path in PAGES
    for number, diagram in enumerate(
        re.findall(r"^```mermaid\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    )
]
RECORDING = ROOT / "docs" / "pictures" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"
LARGEST = 60 * 1024
WIDEST = 1200
"""Pixels of a diagram. GitHub shows 830 and shrinks a wider one."""

DRAW = """async diagram => {
    mermaid.initialize({startOnLoad: false});
    document.body.innerHTML = (await mermaid.render('diagram', diagram)).svg;
    const {width, height} = document.querySelector('#diagram').viewBox.baseVal;
    return [width, height];
}"""


@pytest.fixture
async def page(headless_shell: str) -> AsyncGenerator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=headless_shell, chromium_sandbox=os.geteuid() != 0
        )
        yield await browser.new_page()
        await browser.close()


@pytest.mark.peer
@pytest.mark.thorough
@pytest.mark.parametrize("diagram", DIAGRAMS)
async def test_diagram_can_be_drawn_and_read(page: Page, mermaid: Path, diagram: str) -> None:
    await page.add_script_tag(path=mermaid)
    width, height = await page.evaluate(DRAW, diagram)
    assert 0 < width <= WIDEST
    assert 0 < height <= WIDEST


@pytest.mark.peer
@pytest.mark.thorough
async def test_broken_diagram_is_an_error(page: Page, mermaid: Path) -> None:
    await page.add_script_tag(path=mermaid)
    with pytest.raises(Exception, match="Parse error"):
        await page.evaluate(DRAW, "flowchart LR\n    ada --> --> bob\n")


def lines_of(recording: Path) -> list[str]:
    """Return the texts of a recording. It is small, and refers to nothing outside of itself."""
    picture = recording.read_text(encoding="utf-8")
    assert len(picture.encode()) < LARGEST
    assert re.findall(r"https?://", picture.replace("http://127.0.0.1:", "")) == ["http://"]
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def assert_is_of_the_demo(lines: list[str]) -> None:
    steps = [line for line in lines if re.match(r"\d\. ", line)]
    tour = (ROOT / "shell" / "demo" / "tour.py").read_text(encoding="utf-8")
    assert [step[3:] for step in steps] == re.findall(
        r'^ +(?:await self\._take)?\("([^"]+)", self\._\w+\),?$', tour, re.M
    )
    assert len(steps) == 6
    assert any("exit code 0, no process left" in line for line in lines)


def test_recording_has_the_steps_of_the_demo() -> None:
    assert_is_of_the_demo(lines_of(RECORDING))


def test_picture_of_top_shows_its_sessions() -> None:
    picture = ROOT / "docs" / "pictures" / "top.svg"
    text = "".join(lines_of(picture)).replace("\xa0", " ")
    assert "statehold top" in text
    assert all(head in text for head in ("STATUS", "CALLS/S", "MEMORY", "NOW", "LAST CALL"))
    assert all(name in text for name in ("release", "tea-shop", "research", "nightly-report"))


def test_the_pictures_of_the_console_are_those_that_the_tests_take_and_pages_show() -> None:
    pictures = {path.stem for path in (ROOT / "docs" / "images").iterdir()}
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    shown = set(re.findall(r"images/([\w-]+)\.png", text))
    assert pictures == shown == PICTURES
