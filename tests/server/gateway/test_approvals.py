"""Approvals: what a person approved is what runs, once, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp_types import ElicitRequestFormParams, ElicitResult
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    Era,
    Running,
    Way,
    code_of,
    kill,
    opened_session,
    run_command,
    service,
    serving,
    text_of,
    toml,
)
from support.task_client import task_client
from support.waiting import until


@dataclass
class Bank:
    """A server each call of which a person approves, and the configuration that names it."""

    folder: Path
    approve: Any = "all"
    era: Era = "modern"
    more: JSON = field(default_factory=dict[str, Any])
    """Other settings of the server."""
    questions: list[str] = field(default_factory=list[str])
    running: Running | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def config(self) -> Path:
        config = self.folder / "statehold.toml"
        offered = self.folder / "offered.json"
        if not offered.exists():
            self.offer("Sends money.")
        bank = service("changing", "--file", str(offered), approve=self.approve)
        config.write_text(toml({"audit": "on", "services": {"bank": bank}, **self.more}))
        return config

    def offer(self, description: str) -> None:
        schema: JSON = {"type": "object"}
        send = {"name": "send", "description": description, "inputSchema": schema}
        look = {"name": "look", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
        change = {"name": "change", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
        (self.folder / "offered.json").write_text(json.dumps({"tools": [send, look, change]}))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_command(self.config, self.data, *words)

    @asynccontextmanager
    async def connected(self, *answers: str) -> AsyncGenerator[tuple[Client, str]]:
        """Connect as a client; with answers, one that asks its person."""
        given = iter(answers)

        async def answer(context: object, params: Any) -> ElicitResult:
            assert isinstance(params, ElicitRequestFormParams)
            self.questions.append(params.message)
            decision = next(given)
            if decision == "decline":
                return ElicitResult(action="decline")
            return ElicitResult(action="accept", content={"decision": decision})

        options: dict[str, Any] = {"elicitation_callback": answer} if answers else {}
        with serving(self.config, self.data) as running:
            self.running = running
            way = Way("http", self.era, self.config, self.data, url=running.url)
            async with way.connect(**options) as client:
                yield client, await opened_session(client)


@pytest.fixture
def bank(tmp_path: Path, fork_server: ForkServer) -> Bank:
    return Bank(tmp_path)


async def call(client: Client, session: str, tool: str = "send", **arguments: object) -> Any:
    return await client.call_tool(tool, {"session_id": session, **arguments})


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_person_is_asked_for_each_call_with_its_arguments(bank: Bank, era: Era) -> None:
    bank.era = era
    async with bank.connected("Approve once", "Approve once", "Refuse", "decline") as (client, one):
        for amount in (5, 5):
            sent = await call(client, one, amount=amount, to="Ada")
            assert json.loads(text_of(sent)) == {"amount": amount, "to": "Ada"}
        # Nobody is asked again about a call that was just refused.
        for amount in (9, 9, 10):
            assert code_of(await call(client, one, amount=amount)) == "not_allowed"
    assert len(bank.questions) == 4
    assert '"amount": 5' in bank.questions[0]
    assert '"to": "Ada"' in bank.questions[0]


async def test_an_approval_for_a_session_covers_its_tool_there(bank: Bank) -> None:
    bank.approve = ["send"]
    answers = ("Always in this session", "Refuse", "Refuse")
    async with bank.connected(*answers) as (client, one):
        for amount in (5, 6):
            assert not (await call(client, one, amount=amount)).is_error
        other = await opened_session(client)
        assert (await call(client, other, amount=5)).is_error
        # Another definition is another tool.
        bank.offer("Sends money, twice.")
        await call(client, one, "change")

        async def is_changed() -> bool:
            [send] = [each for each in (await client.list_tools()).tools if each.name == "send"]
            return send.description == "Sends money, twice."

        await until(is_changed)
        assert (await call(client, one, amount=5)).is_error
    assert len(bank.questions) == 3


async def request_id(client: Client, session: str, **arguments: Any) -> str:
    """Send a call that a person has to approve; return the id of the request."""
    refused = await call(client, session, **arguments)
    assert code_of(refused) == "approval_required"
    match = re.search(r"approvals approve (apr_[\w-]+)", text_of(refused))
    assert match is not None
    return match[1]


async def test_a_call_whose_client_cannot_ask_waits_for_the_command(bank: Bank) -> None:
    async with bank.connected() as (client, one):
        first = await request_id(client, one, amount=5)
        second = await request_id(client, one, amount=50)
        listed = await anyio.to_thread.run_sync(bank.run, "approvals", "list", "--json")
        assert {each["id"] for each in json.loads(listed.stdout)["approvals"]} == {first, second}
        async with anyio.create_task_group() as tasks:

            async def repeat() -> None:
                assert not (await call(client, one, amount=5)).is_error

            tasks.start_soon(repeat)
            shown = await anyio.to_thread.run_sync(bank.run, "approvals", "approve", first)
            assert shown.returncode != 0
            approved = await anyio.to_thread.run_sync(
                bank.run, "approvals", "approve", first, "--yes"
            )
            assert approved.returncode == 0, approved.stderr
            assert '"amount": 5' in approved.stdout
        # It is used up, and nothing else was approved.
        assert await request_id(client, one, amount=5) != first
        assert await request_id(client, one, amount=51) != first
        refused = await anyio.to_thread.run_sync(bank.run, "approvals", "refuse", second)
        assert refused.returncode == 0
        again = await anyio.to_thread.run_sync(bank.run, "approvals", "approve", second, "--yes")
        assert again.returncode != 0
    exported = await anyio.to_thread.run_sync(bank.run, "audit", "export")
    assert "approvals.approve" in exported.stdout
    assert "approvals.refuse" in exported.stdout


async def test_a_repeat_with_its_operation_id_gets_the_result_without_another_approval(
    bank: Bank,
) -> None:
    async with bank.connected("Approve once") as (client, one):
        meta: Any = {"statehold/operation_id": "pay-1"}
        for _ in range(2):
            sent = await client.call_tool("send", {"session_id": one, "amount": 5}, meta=meta)
            assert json.loads(text_of(sent)) == {"amount": 5}
    assert len(bank.questions) == 1


async def test_a_client_with_tasks_waits_for_the_task(bank: Bank) -> None:
    with serving(bank.config, bank.data) as running:
        async with task_client(f"{running.url}/mcp") as caller:
            session = await caller.session()
            task = await caller.call("send", {"session_id": session, "amount": 5})
            # A person with whom the session is shared could answer a form in it.
            assert (task["resultType"], task["status"]) == ("task", "working")
            match = re.search(r"apr_[\w-]+", task["statusMessage"])
            assert match is not None
            approved = await anyio.to_thread.run_sync(
                bank.run, "approvals", "approve", match[0], "--yes"
            )
            assert approved.returncode == 0
            ended = await caller.end_of(task["taskId"])
            assert ended["status"] == "completed"
            assert json.loads(ended["result"]["content"][0]["text"]) == {"amount": 5}


async def test_a_call_that_is_handed_over_names_the_request_and_the_task(bank: Bank) -> None:
    bank.more = {"server": {"hand_over": 1.0}, "toolsets": ["core", "calls"]}
    async with bank.connected() as (client, one):
        refused = await call(client, one, amount=5)
        assert code_of(refused) == "approval_required"
        request = re.search(r"approvals approve (apr_[\w-]+)", text_of(refused))
        task = re.search(r"the task_id ([\w.-]+\w)", text_of(refused))
        assert request is not None
        assert task is not None
        waiting = await client.call_tool("call_result", {"task_id": task[1], "wait_seconds": 0})
        assert code_of(waiting) == "approval_required"
        await anyio.to_thread.run_sync(bank.run, "approvals", "approve", request[1], "--yes")
        sent = await client.call_tool("call_result", {"task_id": task[1]})
        assert json.loads(text_of(sent)) == {"amount": 5}


async def test_an_approval_ends_with_the_process_that_was_killed(bank: Bank) -> None:
    async with bank.connected() as (client, one):
        first = await request_id(client, one, amount=5)
        approved = await anyio.to_thread.run_sync(bank.run, "approvals", "approve", first, "--yes")
        assert approved.returncode == 0
        assert bank.running is not None
        kill(bank.running)
    with serving(bank.config, bank.data) as running:
        way = Way("http", "modern", bank.config, bank.data, url=running.url)
        async with way.connect() as client:
            assert await request_id(client, one, amount=5) != first


async def test_a_policy_names_the_arguments_of_calls_that_a_person_approves(bank: Bank) -> None:
    pattern = {"tool": "bank/se*", "argument": "/to/0", "value": "*@example.org"}
    bank.approve, bank.more = "never", {"policies": [{"approve": [pattern]}]}
    async with bank.connected("Refuse") as (client, one):
        for to in (
            ["ada@example.com"],
            "ada@example.org",
            [],
            ["ada@example.com", "b@example.org"],
        ):
            assert not (await call(client, one, to=to)).is_error
        assert (await call(client, one, to=["ada@example.org"])).is_error
    assert len(bank.questions) == 1


@pytest.mark.parametrize(
    ("approve", "tool", "is_asked"),
    [
        ("destructive", "send", True),
        ("destructive", "look", False),
        (["lo*"], "look", True),
        (["lo*"], "send", False),
        ("never", "send", False),
    ],
)
async def test_a_rule_names_the_calls_that_a_person_approves(
    bank: Bank, approve: Any, tool: str, is_asked: bool
) -> None:
    bank.approve = approve
    async with bank.connected("Approve once") as (client, one):
        assert not (await call(client, one, tool)).is_error
    assert len(bank.questions) == is_asked


async def test_odd_characters_are_shown_to_the_person(bank: Bank) -> None:
    async with bank.connected("Refuse") as (client, one):
        await call(client, one, to="\u0430da\u202e.example", note="\U000e0041\x1b[2K")
    shown = bank.questions[0]
    assert "\\u0430da\\u202e.example" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
