"""A call that waits minutes for the first start of its service, and the messages to its caller meanwhile."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from support.gateway_process import JSON, UPSTREAMS, opened_session, service, text_of, toml

from statehold.server.config.load import load
from statehold.server.gateway import probing as subject
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.calls import deadline

# Runs a command as soon as a file is there.
GATE = 'while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@"'


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """List the tools without the services that start slowly, and report a start often."""
    monkeypatch.setattr(subject, "LIST_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(deadline, "STARTING_SECONDS", 0.5)


@asynccontextmanager
async def connected(
    folder: Path, services: JSON, mode: Literal["auto", "legacy"]
) -> AsyncGenerator[Client]:
    """A client of a gateway in this process."""
    file = folder / "statehold.toml"
    file.write_text(toml({"services": services}))
    config = load(config=file, services=None, flags={"data": str(folder / "data")})
    async with (
        open_gateway(config, address="tests") as gateway,
        Client(StateholdServer(gateway, version="0"), mode=mode, cache=None) as client,
    ):
        yield client


def gated(gate: Path, **options: Any) -> JSON:
    """Describe the quick server, which starts when `gate` is there."""
    quick = service("quick", "--era", "legacy")
    arguments = ["-c", GATE, str(gate), quick["command"], *quick["args"]]
    return {"command": "sh", "args": arguments, **options}


async def test_a_caller_hears_at_once_which_service_is_started_and_then_of_its_call(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    services = {
        "ready": service("quick", prefix="ready_"),
        "download": gated(gate, include=["slow"]),
        "other": gated(gate, prefix="other_"),
    }
    heard: list[tuple[float, str | None]] = []
    began, again = anyio.Event(), anyio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        began.set()
        if len(heard) > 1:
            again.set()

    async with connected(tmp_path, services, "legacy") as client:
        session = await opened_session(client, services=["ready", "download"])

        async def call() -> None:
            arguments = {"session_id": session, "seconds": 0.1}
            result = await client.call_tool("slow", arguments, progress_callback=progress)
            assert text_of(result) == "done"

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await began.wait()
                assert heard[0][1] == "Starting service download"
                await again.wait()
                assert heard[1][1] == "Starting service download: 0.5 seconds so far"
                gate.touch()
    counts = [count for count, _ in heard]
    assert counts == sorted(set(counts))
    # The service itself reported five steps, without a message.
    assert [message for _, message in heard[-5:]] == [None] * 5
    assert counts[-1] - counts[-5] == 4


@pytest.mark.thorough
async def test_a_call_of_a_service_that_runs_hears_of_no_start(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    services = {"ready": service("quick"), "download": gated(gate, prefix="later_")}
    heard: list[float] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with connected(tmp_path, services, "legacy") as client:
        session = await opened_session(client, services=["ready"])
        arguments = {"session_id": session}
        with anyio.fail_after(20):
            await client.call_tool("get", arguments)
            arguments = {"session_id": session, "seconds": 0.05}
            result = await client.call_tool("slow", arguments, progress_callback=progress)
    assert text_of(result) == "done"
    assert heard == [1, 2, 3, 4, 5]


async def test_a_prompt_and_completions_wait_for_the_start_of_their_service(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    peer = [sys.executable, str(UPSTREAMS / "conformance.py"), "--era", "modern"]
    services = {
        "ready": service("quick"),
        "download": {"command": "sh", "args": ["-c", GATE, str(gate), *peer], "prefix": "p_"},
    }
    name, given = "p_test_prompt_with_arguments", {"arg1": "x", "arg2": "y"}
    results: list[object] = []
    async with connected(tmp_path, services, "auto") as client:
        session = await opened_session(client, services=["download"])

        async def get() -> None:
            prompt = await client.get_prompt(name, {"session_id": session, **given})
            results.append(prompt.messages[0].content)

        async def complete() -> None:
            completion = await client.complete(
                types.PromptReference(name=name),
                {"name": "arg1", "value": "pa"},
                {"session_id": session},
            )
            results.append(completion.completion.values)

        async def complete_template() -> None:
            address = f"session://{session}/download/test%3A%2F%2Ftemplate%2F{{id}}%2Fdata"
            template = types.ResourceTemplateReference(uri=address)
            completion = await client.complete(template, {"name": "id", "value": "pa"})
            assert completion.completion.values == ["paris", "park", "party"]
            results.append(completion.completion.values)

        with anyio.fail_after(30):
            assert not (await client.list_prompts()).prompts
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(get)
                tasks.start_soon(complete)
                tasks.start_soon(complete_template)
                await anyio.wait_all_tasks_blocked()
                assert results == []
                gate.touch()
            assert len(results) == 3
            with pytest.raises(MCPError, match="Unknown prompt"):
                await client.get_prompt("p_nothing", {"session_id": session})
