"""The timeouts of new sessions, and the longest that an operator allows."""

from __future__ import annotations

import pytest
from support.engine import Build

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.policy import Policy
from statehold.sessions.records import Timeouts

LONGEST = Policy(longest=Timeouts(idle=60, paused=600, lifetime=3600))


@pytest.mark.parametrize("name", ["idle", "paused", "lifetime"])
async def test_a_time_within_its_bound_is_the_sessions_own(build: Build, name: str) -> None:
    async with build(policy=LONGEST) as engine:
        session = await engine.create(**{name: 60.0})
        assert getattr(session.record.timeouts, name) == 60


@pytest.mark.parametrize("seconds", [0.0, -1.0, 3601.0])
@pytest.mark.parametrize("name", ["idle", "paused", "lifetime"])
async def test_a_time_above_its_bound_or_without_end_is_refused(
    build: Build, name: str, seconds: float
) -> None:
    async with build(policy=LONGEST) as engine:
        with pytest.raises(InvalidArgument, match=f"{name}_seconds must be above 0"):
            await engine.create(**{name: seconds})


async def test_a_session_without_an_end_is_allowed_where_there_is_no_bound(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(lifetime=0.0)
        assert session.record.timeouts.lifetime == 0
        with pytest.raises(InvalidArgument, match="must not be negative"):
            await engine.create(lifetime=-1.0)
