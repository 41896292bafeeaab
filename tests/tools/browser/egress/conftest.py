"""A filtering proxy for each test, and an end to each test that hangs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from statehold.tools.browser.egress.proxy import FilteringProxy


@pytest.fixture(autouse=True)
async def in_time() -> AsyncGenerator[None]:
    with anyio.fail_after(20):
        yield


@pytest.fixture
async def proxy() -> AsyncGenerator[FilteringProxy]:
    async with FilteringProxy() as listening:
        yield listening
