"""The private parts of Playwright that Statehold uses; each test names the feature that breaks without its part."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from weakref import ref

import pytest

from statehold.tools.browser.process.driver import Driver


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
