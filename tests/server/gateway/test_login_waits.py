"""Calls that wait until their person is logged in at the service."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from mcp_types import (
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ToolListChangedNotification,
)
from support.fork_server import ForkServer
from support.gateway_process import JSON, Era, Way, opened_session, serving, text_of
from support.guarded_service import guarded, log_in, whoami
from support.loop_clock import LoopClock
from support.selection import matrix
from support.task_client import TaskClient, task_client
from support.waiting import until

from statehold.sessions.clock import ManualClock
from statehold.sessions.store.sql import SQLStore
from statehold.tools.logins.audit import LoginAudit
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.oauth.bearer_auth import AwaitedLogin
from statehold.tools.upstream.oauth.login_pages import LOGIN_SECONDS, LoginPages
from statehold.tools.upstream.oauth.logins import ServiceLogins


async def login_task(caller: TaskClient, session: str) -> tuple[str, str]:
    """Call the service until that needs a login. Return the task of the call, and the address that it asks to open."""

    async def task() -> JSON | None:
        answer = await caller.call("whoami", {"session_id": session})
        return None if answer["resultType"] == "complete" else answer

    answer = await until(task)
    assert answer is not None
    assert (answer["resultType"], answer["status"]) == ("task", "input_required"), answer
    [question] = answer["inputRequests"].values()
    params = question["params"]
    assert (question["method"], params["mode"]) == ("elicitation/create", "url"), question
    return answer["taskId"], params["url"]


async def test_a_call_waits_as_a_task_and_goes_on_when_its_person_is_logged_in(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    def open_target(address: str) -> int:
        return httpx2.get(address, timeout=30).status_code

    with guarded(tmp_path, fork_server) as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            async with task_client(running.url + "/mcp", mode="url") as caller:
                for log_in_by in ("address", "command", "nothing"):
                    session = await caller.session()
                    answer = await caller.call("whoami", {"session_id": session})
                    assert answer["content"][0]["text"] == "logged in"
                    forget = await anyio.to_thread.run_sync(service.run, "forget", "notes")
                    assert forget.returncode == 0
                    task, address = await login_task(caller, session)
                    if log_in_by == "address":
                        await anyio.to_thread.run_sync(log_in, address)
                    elif log_in_by == "command":
                        added = await anyio.to_thread.run_sync(service.add)
                        assert added == (0, "")
                    else:
                        await caller.call("session_close", {"session_id": session})
                        ended = await caller.end_of(task)
                        assert "session_closed" in str(ended), ended
                        other = await caller.session()
                        task, _ = await login_task(caller, other)
                        await caller.result("tasks/cancel", {"taskId": task})
                        assert (await caller.end_of(task))["status"] == "cancelled"
                        assert "inputRequests" not in await caller.get(task)
                        break
                    ended = await caller.end_of(task)
                    assert "logged in" in str(ended["result"]), ended
                    assert await anyio.to_thread.run_sync(open_target, address) == 404
        assert service.events().count("authorized") == 3


@pytest.mark.thorough
async def test_a_call_goes_on_after_its_request_when_its_person_is_logged_in(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """The client has no tasks, and is asked in the request, which ends before the person answers."""
    asked = anyio.Event()

    async def ponder(context: object, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    settings: JSON = {"toolsets": ["core", "calls"], "server": {"hand_over": 1}}
    with guarded(tmp_path, fork_server, **settings) as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "legacy", service.config, service.data, url=running.url)
            async with way.connect(elicitation_callback=ponder) as client:
                session = await opened_session(client)
                assert await whoami(client, session) == "logged in"
                assert service.run("forget", "notes").returncode == 0

                async def task() -> str | None:
                    result = await client.call_tool("whoami", {"session_id": session})
                    found = re.search(r"task_id is ([\w.-]+\w)", text_of(result))
                    return found and found[1]

                task_id = await until(task)
                assert asked.is_set()
                assert await anyio.to_thread.run_sync(service.add) == (0, "")
                result = await client.call_tool("call_result", {"task_id": task_id})
                assert "logged in" in text_of(result)


async def test_a_client_learns_the_address_and_then_the_tools(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """Hosts call listed tools only."""
    changed = anyio.Event()

    async def note(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    with (
        guarded(tmp_path, fork_server) as service,
        serving(service.config, service.data) as running,
    ):
        way = Way("http", "legacy", service.config, service.data, url=running.url)
        async with way.connect(message_handler=note) as client:
            address = re.search(r"http://127\.0\.0\.1:\d+/login/[\w-]+", client.instructions or "")
            assert address is not None, client.instructions
            await anyio.to_thread.run_sync(log_in, address[0])
            with anyio.fail_after(10):
                await changed.wait()
            assert await whoami(client, await opened_session(client)) == "logged in"


@pytest.mark.parametrize("era", matrix("legacy", "modern", quick=1))
async def test_a_tool_that_is_not_listed_yet_is_called_after_the_login(
    tmp_path: Path, fork_server: ForkServer, era: Era
) -> None:
    changed = anyio.Event()

    async def open_address(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        await anyio.to_thread.run_sync(log_in, params.url)
        return ElicitResult(action="accept")

    async def note(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    with (
        guarded(tmp_path, fork_server) as service,
        serving(service.config, service.data) as running,
    ):
        way = Way("http", era, service.config, service.data, url=running.url)
        async with way.connect(elicitation_callback=open_address, message_handler=note) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert "whoami" not in listed
            assert await whoami(client, await opened_session(client)) == "logged in"
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert "whoami" in listed
            if era == "legacy":
                with anyio.fail_after(10):
                    await changed.wait()


async def test_an_address_and_its_wait_are_over_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, later = ManualClock(), LoopClock(monkeypatch)
    config = UpstreamConfig(url="https://example.org/mcp")
    async with SQLStore.memory() as store, anyio.create_task_group() as tasks:
        logins = ServiceLogins(store, clock, LoginAudit(None, clock))
        own_ports = set[int]()
        pages = LoginPages(logins.put, logins.audit, clock, tasks.start_soon, own_ports)
        visit = await pages.visit("ada", "notes", config)
        assert own_ports == {httpx2.URL(visit.address).port}
        assert (await pages.visit("ada", "notes", config)).address == visit.address
        waited: list[bool] = []

        async def wait() -> None:
            waited.append(await AwaitedLogin(logins, visit, None).wait())

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        clock.advance(LOGIN_SECONDS)
        await later.by(LOGIN_SECONDS)
        await until(lambda: waited)
        assert waited == [False]
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(visit.address)).status_code == 404
        assert (await pages.visit("ada", "notes", config)).address != visit.address
        tasks.cancel_scope.cancel()
