"""Questions and log messages of a legacy upstream with several calls in flight: they reach the caller that caused them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from callers import NOTHING, Caller, Serving, text_of, view
from support.loop_clock import LoopClock
from support.selection import matrix
from support.waiting import until

from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.connection import UpstreamConnection
from statehold.tools.upstream.service import UpstreamService


def answering(name: str, **options: Any) -> Caller:
    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "sampling/createMessage":
            content = {"type": "text", "text": name}
            return {"role": "assistant", "model": "none", "content": content}
        return {"action": "accept", "content": {"answer": name}}

    return Caller(answer=answer, log_level="debug", **options)


def waiting_questions(connection: UpstreamConnection) -> int:
    return connection._calls._asking  # pyright: ignore[reportPrivateUsage]


async def ask_all(connection: UpstreamConnection, *names: str) -> dict[str, str]:
    """Ask for all names at once, and return the answers that their calls got."""
    answers: dict[str, str] = {}

    async def call(name: str) -> None:
        answers[name] = text_of(await connection.call("ask", {}, answering(name)))

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(call, name)
    return answers


@pytest.mark.parametrize("scope", matrix("session", "shared"))
@pytest.mark.parametrize("tool", matrix("ask", "sample"))
async def test_over_http_each_of_several_questions_reaches_its_caller_at_once(
    counter_server: Callable[..., str], scope: Any, tool: str
) -> None:
    config = UpstreamConfig(url=counter_server("http", "--era", "legacy"), scope=scope)
    connection = await UpstreamService("counter", config).open(view(), None)
    texts: dict[str, str] = {}

    async def call(name: str) -> None:
        texts[name] = text_of(await connection.call(tool, {}, answering(name)))

    try:
        with anyio.fail_after(8):
            async with anyio.create_task_group() as tasks:
                for name in ("anna", "ben", "cleo", "dora"):
                    tasks.start_soon(call, name)
        assert all(name in text for name, text in texts.items())
        assert len(texts) == 4
    finally:
        await connection.aclose()


@pytest.mark.parametrize("scope", matrix("session", "shared"))
async def test_over_http_log_messages_reach_the_caller_that_caused_them(
    counter_server: Callable[..., str], scope: Any
) -> None:
    config = UpstreamConfig(url=counter_server("http", "--era", "legacy"), scope=scope)
    connection = await UpstreamService("counter", config).open(view(), None)
    callers = [Caller(log_level="info", owner=bool(number % 2)) for number in range(12)]

    async def call(number: int) -> None:
        for _ in range(3):
            await connection.call("log", {"text": f"of {number}"}, callers[number])

    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(len(callers)):
                    tasks.start_soon(call, number)
        for number, caller in enumerate(callers):
            assert [message["data"] for message in caller.logs] == [f"of {number}"] * 3
    finally:
        await connection.aclose()


async def test_questions_that_cannot_be_told_apart_wait_ten_seconds_and_then_take_turns(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_clock = LoopClock(monkeypatch)
    service = serving("asking", "--era", "legacy")
    connection = await service.open(view(), None)
    try:
        with anyio.fail_after(60):
            answers: dict[str, str] = {}

            async def call(name: str) -> None:
                answers[name] = text_of(await connection.call("ask", {}, answering(name)))

            async with anyio.create_task_group() as tasks:
                for name in ("anna", "ben", "cleo"):
                    tasks.start_soon(call, name)
                await until(lambda: waiting_questions(connection) == 3)
                await loop_clock.by(9)
                assert not answers
                await loop_clock.by(2)
            served = [name for name in answers if name in answers[name]]
            assert len(served) == 1
            assert all("waited 1" in answers[name] for name in answers.keys() - set(served))
            # From now on they take turns, on other connections too.
            assert all(name in text for name, text in (await ask_all(connection, "a", "b")).items())
            other = await service.open(view("sh_two"), None)
            assert all(name in text for name, text in (await ask_all(other, "c", "d")).items())
            await other.aclose()
    finally:
        await connection.aclose()


@pytest.mark.thorough
async def test_a_question_goes_on_when_the_other_call_ends_in_time(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_clock = LoopClock(monkeypatch)
    connection = await serving("asking", "--era", "legacy").open(view(), None)
    answers: list[str] = []

    async def call() -> None:
        answers.append(text_of(await connection.call("ask", {}, answering("anna"))))

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks, anyio.create_task_group() as stuck:
                stuck.start_soon(connection.call, "ask", NOTHING, answering("ben"))
                tasks.start_soon(call)
                await until(lambda: waiting_questions(connection) == 2)
                await loop_clock.by(5)
                stuck.cancel_scope.cancel()
        assert "anna" in answers[0]
    finally:
        await connection.aclose()


async def test_a_log_message_that_may_be_anyones_reaches_the_owner_and_no_sharee(
    serving: Serving,
) -> None:
    connection = await serving("asking", "--era", "legacy").open(view(), None)
    owners = [Caller(log_level="info"), Caller(log_level="info")]
    sharee = Caller(log_level="info", owner=False)
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as hanging:
                for caller in (owners[0], sharee):
                    hanging.start_soon(connection.call, "hang", NOTHING, caller)
                await until(lambda: len(connection._calls) == 2)  # pyright: ignore
                await connection.call("log", {"text": "whose?"}, owners[1])
                await until(lambda: owners[0].logs)
                hanging.cancel_scope.cancel()
            assert [[each["data"] for each in owner.logs] for owner in owners] == [["whose?"]] * 2
            assert sharee.logs == []
            # Alone, it can be nobody else's.
            await connection.call("log", {"text": "mine"}, sharee)
            assert [each["data"] for each in sharee.logs] == ["mine"]
    finally:
        await connection.aclose()


@pytest.mark.thorough
async def test_a_log_message_that_may_be_anyones_reaches_none_over_a_shared_connection(
    serving: Serving,
) -> None:
    connection = await serving("asking", "--era", "legacy", scope="shared").open(view(), None)
    callers = [Caller(log_level="info"), Caller(log_level="info")]
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as hanging:
                hanging.start_soon(connection.call, "hang", NOTHING, callers[0])
                await until(lambda: len(connection._calls) == 1)  # pyright: ignore
                await connection.call("log", {"text": "whose?"}, callers[1])
                hanging.cancel_scope.cancel()
            await connection.call("log", {"text": "mine"}, callers[1])
        assert callers[0].logs == []
        assert [each["data"] for each in callers[1].logs] == ["mine"]
    finally:
        await connection.aclose()
