"""A page that reads pictures."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser
from support.pixels import Pixels


@pytest.fixture
async def pixels(browser: Browser) -> AsyncGenerator[Pixels]:
    page = await browser.new_page()
    yield Pixels(page)
    await page.close()
