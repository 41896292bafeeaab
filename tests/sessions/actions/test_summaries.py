"""Summaries by a model: the sessions of one principal keep those of another from none."""

from __future__ import annotations

import anyio
from support.engine import Build
from support.waiting import until

from statehold.sessions.actions.summaries import MAX_WAITING
from statehold.sessions.json_codec import JSON
from statehold.sessions.policy import Policy, SummaryTriggers
from statehold.sessions.records import Principal

ALICE, BOB = Principal(subject="alice"), Principal(subject="bob")


async def test_many_due_summaries_of_one_principal_leave_a_turn_for_another(build: Build) -> None:
    written: list[str] = []
    may_write = anyio.Event()

    async def model(session: JSON) -> JSON:
        await may_write.wait()
        written.append(session["session_id"])
        return {"summary": "They met."}

    policy = Policy(shared=True, live_sessions=1000, summaries=SummaryTriggers(every_messages=1))
    async with build(policy=policy, summarize=model) as engine:
        history = engine.registry.history
        for _ in range(MAX_WAITING + 10):
            session = await engine.create(ALICE)
            await history.note(ALICE, session.id, "user", "hello")
        session = await engine.create(BOB)
        await history.note(BOB, session.id, "user", "hello")
        await anyio.wait_all_tasks_blocked()
        may_write.set()
        await until(lambda: session.id in written)
        assert written.index(session.id) < 10
