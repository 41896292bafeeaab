"""The calls of a session that go on without their callers: a person sees what they ask, and ends them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser
from support.console_client import ConsoleClient, console_client
from support.gateway_process import JSON, Running
from support.task_client import ANSWER, TaskClient, task_client
from support.waiting import until

ASK = {"statehold/hand_over": True}


@pytest.fixture
async def tasks(server: Running, alice_token: str) -> AsyncGenerator[TaskClient]:
    """Alice's agent, which declares tasks."""
    headers = {"authorization": f"Bearer {alice_token}"}
    async with task_client(f"{server.url}/mcp", headers=headers) as client:
        yield client


async def test_a_session_shows_its_open_calls_and_a_person_ends_one(
    server: Running, tasks: TaskClient, alice: ConsoleClient, ben: ConsoleClient
) -> None:
    session, other = await tasks.session(), await tasks.session()
    arguments, meta = {"session_id": session, "seconds": 10}, {**ASK, "progressToken": 1}
    slow = (await tasks.call("slow", arguments, meta))["taskId"]
    asking = (await tasks.call("ask", {"session_id": session}, ASK))["taskId"]
    assert (await alice.get(f"/sessions/{other}"))["calls"] == []

    async def calls() -> dict[str, JSON]:
        document = await alice.get(f"/sessions/{session}")
        return {call["task_id"]: call for call in document["calls"]}

    async def has_reported() -> bool:
        return str((await calls())[slow]["message"]).endswith(" of 5")

    await until(has_reported)
    found = await calls()
    assert found.keys() == {slow, asking}
    assert (found[slow]["tool"], found[slow]["question"]) == ("slow", None)
    assert found[slow]["began_at"].endswith("Z")
    assert found[asking]["question"] == "quick asks: What is the answer?"
    entries = (await alice.get(f"/sessions/{session}/timeline"))["entries"]
    assert [each["status"] for each in entries if "tool" in each] == ["started", "started"]
    path, body = f"/sessions/{session}/actions/cancel-call", {"task_id": slow}
    assert (await ben.refused("POST", path, body))["status"] == 404
    assert (await alice.refused("POST", path, body, x_csrf_token="wrong"))["code"] == "csrf"
    foreign = await alice.refused("POST", f"/sessions/{other}/actions/cancel-call", body)
    assert foreign["code"] == "invalid_argument"
    link = await alice.post(f"/sessions/{session}/shares", link=True, rights="view")
    async with console_client(server.url) as guest:
        await guest.log_in(code=link["code"])
        assert (await guest.refused("POST", path, body))["status"] == 403
    assert (await alice.act(session, "cancel-call", task_id=slow))["status"] == "cancelled"
    assert (await tasks.get(slow))["status"] == "cancelled"
    assert (await calls()).keys() == {asking}


async def test_the_page_of_a_session_has_a_button_for_each_open_call(
    server: Running, tasks: TaskClient, alice: ConsoleClient, browser: Browser
) -> None:
    session = await tasks.session()
    task = (await tasks.call("ask", {"session_id": session}, ASK))["taskId"]
    link = await alice.post(f"/sessions/{session}/shares", link=True, rights="use")
    page = await browser.new_page()
    await page.goto(f"{server.url}{link['path']}")
    await page.get_by_text("quick asks: What is the answer?").wait_for()
    await page.get_by_role("button", name="Cancel ask").click()
    await page.get_by_text("ask was cancelled.").wait_for()
    assert (await tasks.end_of(task))["status"] == "cancelled"
    await page.get_by_role("button", name="Cancel ask").wait_for(state="detached")


async def test_a_question_of_an_open_call_is_an_event(
    tasks: TaskClient, alice: ConsoleClient
) -> None:
    session = await tasks.session()
    task = (await tasks.call("ask_twice", {"session_id": session}, ASK))["taskId"]

    async def question() -> str | None:
        return next(iter((await tasks.get(task)).get("inputRequests", {})), None)

    first = await until(question)
    # All entries of the journal so far are written.
    await alice.get(f"/sessions/{session}/timeline")
    async with alice.events() as events:
        answers = {"taskId": task, "inputResponses": {first: ANSWER}}
        await tasks.result("tasks/update", answers)
        await events.session(session_id=session, status="active")
    assert await question() != first
    [call] = (await alice.get(f"/sessions/{session}"))["calls"]
    assert call["question"] == "quick asks: What is the answer?"
