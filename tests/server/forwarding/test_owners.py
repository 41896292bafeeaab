"""The process that owns a session ends, stops, or drains while another process is asked, on the same or another machine."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.databases import PostgreSQL
from support.gateway_process import (
    JSON,
    Running,
    Way,
    code_of,
    count,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.machines import cluster
from support.runs import entries, wait_for_call
from support.selection import matrix
from support.token_file import write_tokens

LEASE_SECONDS = 2.0
FENCED = 75


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


@dataclass
class Place:
    """The settings of all processes, and the data folders of the owner and of the process that is asked."""

    config: Path
    owner: Path
    edge: Path


@pytest.fixture(params=matrix("unix", "peer"))
def place(request: pytest.FixtureRequest, tmp_path: Path, log: Path) -> Place:
    path = tmp_path / "statehold.toml"
    settings: JSON = {
        "timeouts": {"close_grace": 2},
        "services": {"quick": service("quick", "--log", str(log), sandbox="off")},
    }
    if request.param == "unix":
        path.write_text(toml(settings))
        return Place(path, tmp_path / "data", tmp_path / "data")
    return on_two_machines(path, settings, request.getfixturevalue("postgresql").fresh())


@pytest.fixture
def one_machine(tmp_path: Path, log: Path) -> Place:
    path = tmp_path / "statehold.toml"
    path.write_text(
        toml({"services": {"quick": service("quick", "--log", str(log), sandbox="off")}})
    )
    return Place(path, tmp_path / "data", tmp_path / "data")


@pytest.fixture
def two_machines(postgresql: PostgreSQL, tmp_path: Path, log: Path) -> Place:
    settings: JSON = {"services": {"quick": service("quick", "--log", str(log), sandbox="off")}}
    return on_two_machines(tmp_path / "statehold.toml", settings, postgresql.fresh())


def on_two_machines(path: Path, settings: JSON, url: str) -> Place:
    path.write_text(toml({**cluster(url, lease_seconds=LEASE_SECONDS), **settings}))
    return Place(path, path.parent / "a", path.parent / "b")


@asynccontextmanager
async def owned_session(place: Place) -> AsyncGenerator[tuple[Running, Client, str]]:
    """A session of a `statehold serve`, with that process and a client of another one."""
    with serving(place.config, place.owner) as owner:
        async with Way("http", "modern", place.config, place.owner, url=owner.url).connect() as one:
            session = await opened_session(one)
            assert await count(one, session) == 1
        async with Way("stdio", "modern", place.config, place.edge).connect() as edge:
            assert await count(edge, session) == 2
            yield owner, edge, session


@asynccontextmanager
async def slow_call(
    client: Client, session: str, log: Path, *, seconds: float
) -> AsyncGenerator[list[str]]:
    """A call of `slow` that runs when the block begins, and has ended after it; yields the list of its result."""
    results: list[str] = []

    async def call() -> None:
        result = await client.call_tool("slow", {"session_id": session, "seconds": seconds})
        results.append(text_of(result))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_for_call(log, "slow")
            yield results


async def test_the_session_of_a_killed_owner_is_served_here(place: Place) -> None:
    async with owned_session(place) as (owner, client, session):
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait(10)
        with anyio.fail_after(20):
            result = await client.call_tool("inc", {"session_id": session})
        assert structured(result)["count"] == 1
        assert "generation 1 to 2" in str(result.content)


async def test_the_outcome_of_a_call_is_unknown_when_its_owner_is_killed(
    place: Place, log: Path
) -> None:
    operation: Any = {"statehold/operation_id": "op-1"}
    async with owned_session(place) as (owner, client, session):
        outcomes: list[str] = []

        async def call() -> None:
            result = await client.call_tool("hang", {"session_id": session}, meta=operation)
            outcomes.append(code_of(result))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await wait_for_call(log, "hang")
                owner.process.send_signal(signal.SIGKILL)
            await call()
        assert outcomes == ["outcome_unknown", "outcome_unknown"]
        assert [entry["tool"] for entry in entries(log)].count("hang") == 1
        assert await count(client, session) == 1


async def test_a_call_without_an_operation_id_runs_once_when_its_owner_is_killed(
    place: Place, log: Path
) -> None:
    async with owned_session(place) as (owner, client, session):
        outcomes: list[str] = []

        async def call() -> None:
            outcomes.append(code_of(await client.call_tool("hang", {"session_id": session})))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await wait_for_call(log, "hang")
                owner.process.send_signal(signal.SIGKILL)
        assert outcomes == ["outcome_unknown"]
        assert [entry["tool"] for entry in entries(log)].count("hang") == 1


@pytest.mark.thorough
async def test_a_call_that_only_reads_is_repeated_when_its_owner_is_killed(
    place: Place, log: Path
) -> None:
    async with owned_session(place) as (owner, client, session):
        # The calls of one connection run one after the other: `get` is accepted, and waits behind `hang`.
        results: list[str] = []

        async def call(tool: str) -> None:
            result = await client.call_tool(tool, {"session_id": session})
            # The note of the loss comes with the one of the two that ends last.
            text, *_ = text_of(result).split("\n\nNote from Statehold")
            results.append(code_of(result) if result.is_error else text)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "hang")
                await wait_for_call(log, "hang")
                tasks.start_soon(call, "get")
                await wait_for_call(log, "get")
                owner.process.send_signal(signal.SIGKILL)
        assert sorted(results) in (["0", "outcome_unknown"], ["2", "outcome_unknown"])


@pytest.mark.thorough
async def test_calls_while_the_owner_drains_see_no_error(place: Place) -> None:
    async with owned_session(place) as (owner, client, session):
        counts: list[int] = []
        has_begun = anyio.Event()

        async def call() -> None:
            while len(counts) < 60:
                counts.append(await count(client, session))
                if len(counts) == 20:
                    has_begun.set()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await has_begun.wait()
                owner.process.send_signal(signal.SIGTERM)
        assert len(counts) == 60
        restarted = counts.index(1)
        assert counts == [*range(3, 3 + restarted), *range(1, 61 - restarted)]


@pytest.mark.thorough
async def test_a_call_in_flight_is_answered_when_its_owner_drains(place: Place, log: Path) -> None:
    async with owned_session(place) as (owner, client, session):
        async with slow_call(client, session, log, seconds=0.5) as results:
            owner.process.send_signal(signal.SIGTERM)
            assert await count(client, session) == 1
        assert results == ["done"]


@pytest.mark.thorough
async def test_a_forwarded_call_is_answered_when_the_process_that_was_asked_ends(
    place: Place, log: Path
) -> None:
    config = place.config
    with serving(config, place.owner) as owner, serving(config, place.edge) as edge:
        async with Way("http", "modern", config, place.owner, url=owner.url).connect() as client:
            session = await opened_session(client)
            await count(client, session)
        async with Way("http", "modern", config, place.edge, url=edge.url).connect() as client:
            # Otherwise the client lists the tools after the result, on a connection that is closed by then.
            await client.list_tools()
            async with slow_call(client, session, log, seconds=1) as results:
                edge.process.send_signal(signal.SIGTERM)
            assert results == ["done"]


@pytest.mark.thorough
async def test_a_stopped_owner_keeps_its_session_and_runs_nothing_late(
    one_machine: Place, log: Path
) -> None:
    async with owned_session(one_machine) as (owner, client, session):
        owner.process.send_signal(signal.SIGSTOP)
        try:
            with anyio.fail_after(20):
                refused = await client.call_tool("inc", {"session_id": session, "n": 100})
        finally:
            owner.process.send_signal(signal.SIGCONT)
        assert code_of(refused) == "session_busy"
        with anyio.fail_after(20):
            assert await count(client, session) == 3
        assert not [entry for entry in entries(log) if entry["arguments"].get("n") == 100]


@pytest.mark.thorough
async def test_the_session_of_a_stopped_owner_is_taken_over_and_it_runs_nothing_late(
    two_machines: Place, log: Path
) -> None:
    async with owned_session(two_machines) as (owner, client, session):
        owner.process.send_signal(signal.SIGSTOP)
        try:
            with anyio.fail_after(LEASE_SECONDS + 10):
                result = await client.call_tool("inc", {"session_id": session, "n": 100})
        finally:
            owner.process.send_signal(signal.SIGCONT)
        assert structured(result)["count"] == 100
        with anyio.fail_after(20):
            assert await anyio.to_thread.run_sync(owner.process.wait) == FENCED
        assert await count(client, session) == 101
        hundreds = [entry for entry in entries(log) if entry["arguments"].get("n") == 100]
        assert len(hundreds) == 1


@pytest.mark.thorough
async def test_the_outcome_of_a_call_is_unknown_when_its_owner_is_stopped_for_too_long(
    two_machines: Place, log: Path
) -> None:
    async with owned_session(two_machines) as (owner, client, session):
        outcomes: list[str] = []

        async def call() -> None:
            outcomes.append(code_of(await client.call_tool("hang", {"session_id": session})))

        try:
            with anyio.fail_after(LEASE_SECONDS + 10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    await wait_for_call(log, "hang")
                    owner.process.send_signal(signal.SIGSTOP)
        finally:
            owner.process.send_signal(signal.SIGCONT)
        assert outcomes == ["outcome_unknown"]
        assert await count(client, session) == 1


async def test_a_session_of_another_principal_is_unknown(log: Path, tmp_path: Path) -> None:
    tokens, config, data = tmp_path / "tokens", tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(tokens_config(tokens, log))
    with serving(config, data) as owner, serving(config, data) as other:

        def way(running: Running, token: str) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            return Way("http", "modern", config, data, url=running.url).connect(headers=headers)

        async with way(owner, ALICE) as client:
            session = await opened_session(client)
            assert await count(client, session) == 1
        async with way(other, ALICE) as client:
            assert await count(client, session) == 2
        async with way(other, BOB) as client:
            refused = await client.call_tool("inc", {"session_id": session})
            assert code_of(refused) == "session_not_found"


ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"


def tokens_config(tokens: Path, log: Path) -> str:
    write_tokens(tokens, f"{ALICE} alice\n{BOB} bob\n")
    settings: JSON = {
        "server": {"tokens": str(tokens)},
        "services": {"quick": service("quick", "--log", str(log), sandbox="off")},
    }
    return toml(settings)
