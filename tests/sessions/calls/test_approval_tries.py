"""Approvals against tries to run something else than a person approved, or to run it twice."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest
from support.counting import SPECS, Counter, Counting, Nobody
from support.engine import Engine, engine

from statehold.access.audit.recorder import Actor, Audit
from statehold.sessions.calls import approval
from statehold.sessions.calls.approval import (
    APPROVAL_SECONDS,
    MAX_CHARACTERS,
    Decision,
    decide,
    show_arguments,
)
from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.errors import ApprovalRequired, NotAllowed, SessionError
from statehold.sessions.json_codec import JSON
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.services import (
    ApprovalRule,
    CallContext,
    CallerOptions,
    SessionView,
    ToolResult,
    ToolSpec,
)
from statehold.sessions.store.people.approvals import MOST_REQUESTS

ADMIT = partial(Audit().admit, Actor.of_command())
SEED = 20261130
TEXTS = ("ada", "bob@example.org", "\u0430da", "", "5", "a\u202eb", "x" * 300)


class RecordingCounter(Counter):
    """A connection that keeps the arguments of its calls."""

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        assert isinstance(self.service, Bank)
        self.service.runs.append((self.view.id, tool, dict(arguments)))
        self.service.metas.append(ctx.options.meta)
        return await super().call(tool, arguments, ctx)


@dataclass(eq=False)
class Bank(Counting):
    """A service whose calls a person approves."""

    approve: ApprovalRule = "all"
    runs: list[tuple[str, str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, str, dict[str, Any]]]
    )
    metas: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def connection(self, session: SessionView) -> Counter:
        return RecordingCounter(self, session)


@asynccontextmanager
async def open_bank() -> AsyncGenerator[tuple[Engine, Bank]]:
    bank = Bank()
    async with engine(bank) as running:
        yield running, bank


async def request_approval(
    running: Engine, session: str, tool: str = "inc", **arguments: Any
) -> str:
    """Send a call that a person has to approve; return the id of the request."""
    with pytest.raises(ApprovalRequired) as caught:
        await running.call(session, tool, **arguments)
    return id_of(caught.value)


def id_of(error: ApprovalRequired) -> str:
    match = re.search(r"request (apr_[\w-]+)", error.message)
    assert match is not None
    return match[1]


async def decide_request(running: Engine, request: str, decision: Decision = "approve") -> bool:
    found = await running.store.access.approval(request)
    assert found is not None
    return await decide(running.store, ADMIT, found, decision, running.clock.now())


async def try_call(running: Engine, session: str, tool: str, arguments: dict[str, Any]) -> str:
    """Send a call, and return its end."""
    try:
        await running.call(session, tool, **arguments)
    except SessionError as error:
        return error.code
    return "ok"


@pytest.mark.thorough
async def test_no_try_runs_what_was_not_approved_and_nothing_runs_twice() -> None:
    chance = random.Random(SEED)
    async with open_bank() as (running, bank):
        one, other = (await running.create()).id, (await running.create()).id
        for number in range(300):
            to = chance.choice(TEXTS)
            arguments: dict[str, Any] = {"number": number, "to": to, "more": [{"a": 1}]}
            request = await request_approval(running, one, **arguments)
            assert await decide_request(running, request)
            before, kind = len(bank.runs), number % 8
            live = running.registry.directory.get(one)
            assert live is not None
            record = live.record
            session, tool, changed = one, "inc", dict(arguments)
            if kind == 0:
                changed["to"] = chance.choice([text for text in TEXTS if text != to])
            elif kind == 1:
                changed["more"] = chance.choice([[{"a": True}], [{"a": 1.0}], [{"a": "1"}], []])
            elif kind == 2:
                tool = chance.choice(("get", "INC", "inc ", "\u0456nc"))
            elif kind == 3:
                session = other
            elif kind == 4:
                changed[chance.choice(("To", "to ", "t\u043e"))] = changed.pop("to")
            elif kind == 5:
                words = {"description": f"It sends money, {number}."}
                bank.specs["inc"] = ToolSpec("inc", {**SPECS["inc"].definition, **words})
            elif kind == 6:
                running.clock.advance(APPROVAL_SECONDS)
            else:
                live.record = record.model_copy(update={"epoch": record.epoch + 1})
            assert await try_call(running, session, tool, changed) == "approval_required", kind
            live.record = record
            assert len(bank.runs) == before, kind
            if kind in (5, 6, 7):
                continue
            # Two at once: one of them runs, with the arguments that were approved, and later none does.
            ends: list[str] = []

            async def repeat(arguments: dict[str, Any], ends: list[str]) -> None:
                ends.append(await try_call(running, one, "inc", arguments))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(repeat, arguments, ends)
                tasks.start_soon(repeat, arguments, ends)
            assert sorted(ends) == ["approval_required", "ok"]
            assert bank.runs[before:] == [(one, "inc", arguments)]


async def test_an_unanswered_request_ends_and_says_so() -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        request = await request_approval(running, one)
        ends: list[CallAnswer | SessionError] = []

        async def repeat() -> None:
            try:
                ends.append(await running.call(one))
            except SessionError as error:
                ends.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(repeat)
            # A repeat waits for a while.
            await running.pass_time(lambda: ends, step=5)
        assert isinstance(ends[0], ApprovalRequired)
        assert request in ends[0].message
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(repeat)
            await running.until(lambda: running.registry.statistics()["in_flight"])
            assert await decide_request(running, request, "refuse")
            await running.pass_time(lambda: len(ends) == 2)
        assert isinstance(ends[1], NotAllowed)
        assert "refused" in ends[1].message
        assert not bank.runs
        running.clock.advance(APPROVAL_SECONDS)
        assert await request_approval(running, one) != request
        assert not await decide_request(running, request)


async def test_the_arguments_of_an_unanswered_request_do_not_stay_in_the_store() -> None:
    async with open_bank() as (running, _):
        request = await request_approval(running, (await running.create()).id, password="a")
        running.clock.advance(APPROVAL_SECONDS)
        await running.registry._expiry.sweep()  # pyright: ignore[reportPrivateUsage]
        assert await running.store.access.approval(request) is None


class SilentCaller(Nobody):
    """A caller whose person never answers."""

    options = CallerOptions(may_approve=True)

    async def ask(self, method: str, params: JSON) -> JSON:
        await anyio.sleep_forever()
        raise AssertionError


async def test_a_question_without_an_answer_ends_the_call() -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        errors: list[SessionError] = []

        async def call() -> None:
            try:
                await running.router.call(Request(LOCAL, one, bank.name, "inc", {}), SilentCaller())
            except SessionError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await running.pass_time(lambda: errors, step=5)
        assert isinstance(errors[0], NotAllowed)
        assert "Nobody approved this call within 300 seconds" in errors[0].message
        assert not bank.runs


class MetaCaller(Nobody):
    """A caller whose `_meta` names something that a server may read."""

    options = CallerOptions(meta={"example.org/to": "b"})


async def test_a_server_gets_no_meta_that_the_person_did_not_see() -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        assert await decide_request(running, await request_approval(running, one))
        await running.router.call(Request(LOCAL, one, bank.name, "inc", {}), MetaCaller())
        bank.approve = "never"
        await running.router.call(Request(LOCAL, one, bank.name, "inc", {}), MetaCaller())
        assert bank.metas == [{}, MetaCaller.options.meta]


async def test_nobody_approves_the_calls_of_statehold_itself() -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        await running.router.call(
            Request(LOCAL, one, bank.name, "inc", {}, is_internal=True), Nobody()
        )
        assert len(bank.runs) == 1


async def test_arguments_that_no_person_can_read_are_refused_before_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> str:
        raise AssertionError

    async with open_bank() as (running, bank):
        one = (await running.create()).id
        monkeypatch.setattr(approval, "canonical", fail)
        with pytest.raises(NotAllowed, match="too long"):
            await running.call(one, text="a" * MAX_CHARACTERS)
        assert not bank.runs


async def test_a_session_has_a_bounded_number_of_requests() -> None:
    async with open_bank() as (running, _):
        one, other = (await running.create()).id, (await running.create()).id
        first = await request_approval(running, one, number=0)
        for number in range(1, MOST_REQUESTS):
            await request_approval(running, one, number=number)
        assert await try_call(running, one, "inc", {"number": MOST_REQUESTS}) == "session_limit"
        await request_approval(running, other)
        assert await decide_request(running, first, "refuse")
        await request_approval(running, one, number=MOST_REQUESTS)


async def test_a_standing_approval_ends_when_a_person_ends_it() -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        request = await request_approval(running, one, amount=5)
        assert await decide_request(running, request, "approve_for_session")
        for amount in (5, 6):
            await running.call(one, amount=amount)
        assert len(bank.runs) == 2
        assert await decide_request(running, request, "refuse")
        await request_approval(running, one, amount=5)


async def test_an_approval_does_not_cover_who_shares_the_session() -> None:
    sharee = Principal(subject="bob")
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        shared = Request(LOCAL, one, bank.name, "inc", {}, sharee=sharee.key)
        request = await request_approval(running, one)
        assert await decide_request(running, request, "approve_for_session")
        with pytest.raises(ApprovalRequired) as caught:
            await running.router.call(shared, Nobody())
        found = await running.store.access.approval(id_of(caught.value))
        assert found is not None
        assert '"asked by": "bob"' in show_arguments(found.arguments)
        await decide_request(running, found.id)
        await running.router.call(shared, Nobody())
        assert len(bank.runs) == 1


async def test_a_used_approval_is_gone_when_the_call_is_not_sent_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_bank() as (running, bank):
        one = (await running.create()).id
        assert await decide_request(running, await request_approval(running, one))
        access = running.store.access
        use = access.use_approval

        async def use_and_lose_the_lease(*arguments: Any) -> bool:
            is_used = await use(*arguments)
            monkeypatch.setattr(running.node, "require_lease", fail)
            return is_used

        def fail() -> None:
            raise NotAllowed("The lease is over.")

        monkeypatch.setattr(access, "use_approval", use_and_lose_the_lease)
        with pytest.raises(NotAllowed):
            await running.call(one)
        monkeypatch.undo()
        await request_approval(running, one)
        assert not bank.runs


async def test_a_call_that_may_have_run_is_not_repeated_with_its_approval() -> None:
    async with open_bank() as (running, bank):
        idempotent = {**SPECS["die"].definition, "annotations": {"idempotentHint": True}}
        bank.specs["die"] = ToolSpec("die", idempotent)
        one = (await running.create()).id
        assert await decide_request(running, await request_approval(running, one, "die"))
        assert await try_call(running, one, "die", {}) == "outcome_unknown"
        assert [tool for _, tool, _ in bank.runs] == ["die"]
