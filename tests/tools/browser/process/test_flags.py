"""The flags that a browser really gets, read from the command line of one that Playwright started."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from playwright.async_api import async_playwright

from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.process.choice import find_browser, launch_options
from statehold.tools.browser.process.flags import (
    SETTINGS,
    SLIM,
    join_flags,
    playwright_features,
    with_settings,
)


@asynccontextmanager
async def started(config: BrowserConfig) -> AsyncGenerator[list[str]]:
    """The command line of a browser while it runs."""
    before = set(psutil.Process().children(recursive=True))
    async with async_playwright() as playwright:
        options = launch_options(find_browser(config), config)
        browser = await playwright.chromium.launch(**options)
        new = [p for p in psutil.Process().children(recursive=True) if p not in before]
        lines = [p.cmdline() for p in new]
        flag = "--remote-debugging-pipe"
        yield next(
            line
            for line in lines
            if flag in line and not any(word.startswith("--type=") for word in line)
        )
        await browser.close()


def values(line: list[str], name: str) -> list[list[str]]:
    return [word.partition("=")[2].split(",") for word in line if word.startswith(f"{name}=")]


@pytest.mark.thorough
@pytest.mark.peer
async def test_a_whole_browser_is_slim_and_keeps_playwrights_list(chromium: str) -> None:
    config = BrowserConfig(executable=chromium, args=["--disable-features=Translate"])
    async with started(config) as line:
        playwrights, ours = values(line, "--disable-features")
    assert tuple(playwrights) == playwright_features("--disable-features")
    assert ours == [*playwrights, *SLIM, "Translate"]


@pytest.mark.peer
async def test_a_headless_shell_gets_the_flags_that_were_configured_and_no_more(
    real_shell: str,
) -> None:
    config = BrowserConfig(executable=real_shell, args=["--enable-features=Mine", "--lang=de"])
    async with started(config) as line:
        playwrights, ours = values(line, "--enable-features")
        assert len(values(line, "--disable-features")) == 1
        assert line.count("--lang=de") == 1
    assert tuple(playwrights) == playwright_features("--enable-features")
    assert ours == [*playwrights, "Mine"]


@pytest.mark.thorough
@pytest.mark.peer
async def test_settings_of_playwright_are_kept_beside_ours(headless_shell: str) -> None:
    async with started(BrowserConfig(executable=headless_shell)) as line:
        [playwrights] = [word for word in line if word.startswith(SETTINGS)]
    assert with_settings([], headless=True) == [f"{playwrights},middleClickPasteAllowed=false"]


def test_configured_settings_are_kept_beside_ours() -> None:
    args = with_settings(["--a", f"{SETTINGS}x=1", "--b"], headless=False)
    assert args == ["--a", "--b", f"{SETTINGS}middleClickPasteAllowed=false,x=1"]


def test_flags_are_joined_without_repeating_any() -> None:
    own = playwright_features("--disable-features")
    result = join_flags("--disable-features=A,B", "--x", "--disable-features=B,C", "--x", "--y=1")
    assert result == ["--x", "--y=1", "--disable-features=" + ",".join([*own, "A", "B", "C"])]
    assert join_flags() == []


def test_a_playwright_whose_source_is_unknown_gives_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statehold.tools.browser.process import flags

    def package() -> Path:
        return tmp_path

    monkeypatch.setattr(flags, "playwright_package", package)
    playwright_features.cache_clear()
    try:
        assert playwright_features("--disable-features") == ()
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/coreBundle.js").write_text("nothing of it")
        playwright_features.cache_clear()
        assert playwright_features("--disable-features") == ()
        assert flags.slim() == ()
    finally:
        playwright_features.cache_clear()
