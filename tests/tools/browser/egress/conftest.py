"""A filtering proxy for each test."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from statehold.tools.browser.egress.proxy import FilteringProxy


@pytest.fixture
async def proxy() -> AsyncGenerator[FilteringProxy]:
    async with FilteringProxy() as listening:
        yield listening
