"""Tasks under kills of their server: each that a client was told of ends with its own result, and no call runs twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from support.fork_server import ForkServer
from support.gateway_process import UPSTREAMS, kill, service, serving, toml
from support.listening import run_listening
from support.task_client import TaskClient, task_client

from statehold.sessions.json_codec import JSON

pytestmark = [pytest.mark.thorough, pytest.mark.fault]

ROUNDS = 8
CALLS = 8
SEED = 20261130


@dataclass
class Campaign:
    """Calls of `slow` in one session, under kills at random times."""

    config: Path
    data: Path
    seed: int
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """The results that the tasks have to have."""
    session: str = ""

    async def strike(self, number: int) -> None:
        """Begin calls, and kill the server while they run."""
        chance = random.Random(f"{self.seed} {number}")
        with serving(self.config, self.data) as running:
            async with task_client(f"{running.url}/mcp") as client:
                if not self.session:
                    self.session = await client.session()
                async with anyio.create_task_group() as group:
                    for call in range(CALLS):
                        name, seconds = f"{number}-{call}", chance.uniform(0.05, 3)
                        group.start_soon(partial(self.begin, client, name, seconds))
                    # From before the calls are sent until some have ended.
                    await anyio.sleep(chance.uniform(0.0, 2.5))
                    kill(running)

    async def begin(self, client: TaskClient, name: str, seconds: float) -> None:
        arguments = {"session_id": self.session, "seconds": seconds, "result": name}
        try:
            answer = await client.call("slow", arguments)
        except httpx2.HTTPError:
            return
        if answer.get("resultType") == "task":
            self.tasks[answer["taskId"]] = name
        else:
            assert answer["content"][0]["text"] == name


async def test_each_task_ends_with_its_own_result(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = tmp_path / "statehold.toml"
    asking = service("asking", "--long", "--log", str(log))
    config.write_text(toml({"services": {"asking": asking}}))
    campaign = Campaign(config, tmp_path / "data", SEED)
    with anyio.fail_after(300):
        for number in range(ROUNDS):
            await campaign.strike(number)
        with serving(config, tmp_path / "data") as running:
            async with task_client(f"{running.url}/mcp") as client:
                for task, name in campaign.tasks.items():
                    ended = await client.end_of(task)
                    assert ended["status"] == "completed", ended
                    assert ended["result"]["content"][0]["text"] == name, ended
    assert len(campaign.tasks) > ROUNDS
    lines: list[JSON] = [json.loads(line) for line in log.read_text().splitlines()]
    effects = Counter(line["arguments"]["result"] for line in lines if line.get("event") is None)
    assert set(effects.values()) == {1}
    assert set(campaign.tasks.values()) <= effects.keys()


async def test_tasks_of_a_server_over_http_end_though_we_are_killed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    options = ("--log", str(log), "--transport", "http", "--era", "modern")
    working = {"status": "working"}
    with run_listening(fork_server.command(str(UPSTREAMS / "task_server.py"), *options)) as port:
        config = tmp_path / "statehold.toml"
        address = {"url": f"http://127.0.0.1:{port}/mcp"}
        config.write_text(toml({"services": {"tasks": address}}))
        tasks: dict[str, str] = {}
        session = ""
        with anyio.fail_after(240):
            for number in range(ROUNDS // 2):
                with serving(config, tmp_path / "data") as running:
                    async with task_client(f"{running.url}/mcp") as client:
                        session = session or await client.session()
                        for call in range(CALLS // 2):
                            text = f"{number}-{call}"
                            result = {"content": [{"type": "text", "text": text}]}
                            done = {"status": "completed", "result": result}
                            script = [*[working] * 30, done]
                            arguments: JSON = {"session_id": session, "script": script}
                            answer = await client.call("must", arguments)
                            tasks[answer["taskId"]] = text
                    kill(running)
            with serving(config, tmp_path / "data") as running:
                async with task_client(f"{running.url}/mcp") as client:
                    for task, text in tasks.items():
                        ended = await client.end_of(task)
                        assert ended["result"]["content"][0]["text"] == text, ended
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line["tool"] == "must" for line in lines) == len(tasks)
    assert not any(line["tool"] == "tasks/cancel" for line in lines)
