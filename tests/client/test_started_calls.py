"""Calls that go on without their caller: their results, questions and ends, over every transport."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from support.gateway_process import JSON, Running
from support.task_client import TASKS, Gate
from support.waiting import until

from statehold.client import Client, Question, Task, connect
from statehold.client.errors import OutcomeUnknown, RequestRefused, SessionClosed, ToolFailed

Connect: TypeAlias = Callable[..., Client]


async def test_a_started_call_goes_on_until_it_is_awaited(client: Client, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with client.session(services=["quick"]) as s:
        task = await s.start("hold", fifo=str(gate.path))
        assert task.id.startswith(f"{s.id}.")
        assert await task.status() == "working"
        with anyio.move_on_after(0.1) as waiting:
            await task
        assert waiting.cancelled_caught
        same = s.task(task.id)
        assert await same.status() == "working"
        await gate.release()
        assert (await task).text == (await same).text == (await task.result()).text == "held"
        assert await task.status() == "completed"
        assert (await s.call("inc")).text == "1"
        assert [each.tool for each in (await s.history(kind="call")).entries] == ["hold", "inc"]


async def test_awaiting_a_task_raises_what_the_call_would(client: Client, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with client.session(services=["quick"]) as s:
        failed = await s.start("fail")
        with pytest.raises(ToolFailed) as failure:
            await failed
        assert (failure.value.tool, s.last_error) == ("fail", failure.value)
        assert await failed.status() == "completed"
        refused = await s.start("hold", {"fifo": str(gate.path)})
        await gate.release("not today")
        with pytest.raises(RequestRefused, match="not today") as refusal:
            await refused
        assert (refusal.value.rpc_code, refusal.value.data) == (-32077, {"why": "it is late"})
        assert await refused.status() == "failed"
        with pytest.raises(RequestRefused, match="Task not found"):
            await s.task(f"{s.id}.other")
    with pytest.raises(SessionClosed):
        await s.start("inc")


async def test_a_call_that_cannot_go_on_alone_gives_a_task_that_has_ended(client: Client) -> None:
    async with client.session("shop") as s:
        task = await s.start("session_info")
        assert await task.status() == "completed"
        assert ((await task).structured_content or {})["name"] == "shop"
        await task.cancel()


async def test_a_cancelled_task_has_no_outcome(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        task = await s.start("hang")
        await task.cancel()
        with pytest.raises(OutcomeUnknown, match="cancelled"):
            await task
        assert await task.status() == "cancelled"
        await task.cancel()
        assert (await s.info()).in_flight == 0


async def test_the_questions_of_a_task_go_to_the_callback(way: Connect) -> None:
    questions: list[str] = []

    async def answer(question: Question) -> dict[str, str]:
        questions.append(question.message)
        if len(questions) > 2:
            raise LookupError("no answer")
        return {"answer": f"answer {len(questions)}"}

    async with way(elicitation_callback=answer) as client, client.session(services=["quick"]) as s:
        task = await s.start("ask_twice")
        assert "answer 2" in (await task).text
        assert questions == ["quick asks: What is the answer?"] * 2
        with pytest.raises(LookupError):
            await (await s.start("ask_twice"))
        assert len(questions) == 3


async def test_a_client_without_callback_waits_for_the_answer_of_another(server: Running) -> None:
    texts: list[str] = []

    async def answer(question: Question) -> dict[str, str]:
        return {"answer": "42"}

    async with (
        connect(server.url) as watching,
        connect(server.url, elicitation_callback=answer) as client,
        client.session(services=["quick"]) as s,
    ):
        task = await s.start("ask")
        seen = (await watching.get(s.id)).task(task.id)
        await until(lambda: _asks(seen))

        async def watch() -> None:
            texts.append((await seen).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            texts.append((await task).text)
    assert ["42" in text for text in texts] == [True, True]


async def _asks(task: Task) -> bool:
    return await task.status() == "input_required"


async def test_only_a_start_declares_tasks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    transport, sent = client.requests.transport, list[JSON]()
    send = transport.request

    async def request(method: str, params: JSON, **options: Any) -> JSON:
        sent.append(params["_meta"])
        return await send(method, params, **options)

    async with client.session(services=["quick"]) as s:
        monkeypatch.setattr(transport, "request", request)
        await s.call("inc")
        await s.start("inc")
        monkeypatch.undo()
    declared = [meta["io.modelcontextprotocol/clientCapabilities"] for meta in sent]
    assert declared == [{}, {"extensions": {TASKS: {}}}]
    assert ["statehold/hand_over" in meta for meta in sent] == [False, True]
