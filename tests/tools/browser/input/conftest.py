"""A person who has control of a session's browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from support.browsing import Browse
from support.taking_over import Person


@pytest.fixture
async def person(browse: Browse) -> AsyncGenerator[Person]:
    """A person who took control, and gives it back after the test."""
    await browse.connection.session.current()
    await browse.connection.begin_human_control()
    yield Person(browse.connection)
    await browse.connection.end_human_control()
