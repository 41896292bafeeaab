"""A node on another machine dies, is stopped, or loses the database; each is a real process on a real database."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp import types as mcp_types
from sqlalchemy import text
from support.cluster_nodes import LEASE_SECONDS, Start
from support.databases import PostgreSQL
from support.gateway_process import (
    Running,
    Way,
    code_of,
    count,
    meta_of,
    opened_session,
    structured,
)
from support.relay import relay_to
from support.runs import entries, wait_for_call
from support.waiting import until

FENCED = 75
pytestmark = [pytest.mark.fault, pytest.mark.thorough]


@asynccontextmanager
async def client_of(node: Running) -> AsyncGenerator[Client]:
    way = Way("http", "modern", Path(), Path(), url=node.url)
    async with way.connect() as client:
        yield client


async def served(client: Client, session: str, tool: str = "inc") -> mcp_types.CallToolResult:
    """Call until the session is served; before, each call must say that it may be repeated."""

    async def answer() -> mcp_types.CallToolResult | None:
        result = await client.call_tool(tool, {"session_id": session})
        if result.is_error:
            assert meta_of(result)["statehold/error"]["retryable"], code_of(result)
            return None
        return result

    result = await until(answer, within=30)
    assert result is not None
    return result


async def exit_code(node: Running) -> int:
    with anyio.fail_after(30):
        return await anyio.to_thread.run_sync(node.process.wait)


async def test_the_session_of_a_node_that_was_killed_on_another_machine_is_taken_over(
    start: Start,
) -> None:
    with start("a") as owner, start("b") as other:
        async with client_of(owner) as client:
            session = await opened_session(client)
            assert await count(client, session) == 1
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait(10)
        async with client_of(other) as client:
            began_at = anyio.current_time()
            result = await served(client, session)
        assert structured(result)["count"] == 1
        assert "generation 1 to 2" in str(result.content)
        # It was acknowledged as alive at most a renewal before it was killed.
        assert anyio.current_time() - began_at > LEASE_SECONDS / 2
        assert "its lease is over" in other.log


async def test_a_node_that_was_stopped_does_not_act_when_it_goes_on(
    start: Start, log: Path
) -> None:
    with start("a") as owner, start("b") as other:
        async with client_of(owner) as old_client, client_of(other) as client:
            session = await opened_session(old_client)
            assert await count(old_client, session) == 1
            owner.process.send_signal(signal.SIGSTOP)
            errors: list[str] = []

            async def call() -> None:
                try:
                    result = await old_client.call_tool("get", {"session_id": session})
                    errors.append(code_of(result))
                except MCPError as error:
                    errors.append(str(error))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                assert structured(await served(client, session))["count"] == 1
                owner.process.send_signal(signal.SIGCONT)
            assert len(errors) == 1
        assert await exit_code(owner) == FENCED, owner.log
        assert "declared this one dead" in owner.log
        assert [entry["tool"] for entry in entries(log)] == ["inc", "inc"]


async def test_a_node_without_the_database_ends_its_calls_before_another_one_takes_over(
    start: Start, postgresql: PostgreSQL, url: str, log: Path
) -> None:
    postgresql.start()
    name = url.removeprefix("postgresql://statehold@/").partition("?")[0]
    with relay_to(postgresql.folder / ".s.PGSQL.5432") as relay, start("b") as other:
        far = f"postgresql://statehold@127.0.0.1:{relay.port}/{name}"
        with start("a", store=far) as owner:
            async with client_of(owner) as old_client, client_of(other) as client:
                session = await opened_session(old_client)

                async def hang() -> None:
                    with anyio.fail_after(20):
                        result = await old_client.call_tool("hang", {"session_id": session})
                    assert code_of(result) == "outcome_unknown"

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hang)
                    await wait_for_call(log, "hang")
                    relay.cut()
                await served(client, session)
                refused = await old_client.call_tool("get", {"session_id": session})
                assert code_of(refused) == "service_unavailable"
                assert meta_of(refused)["statehold/error"]["retryable"]
                relay.join()
            assert await exit_code(owner) == FENCED, owner.log
    ran = [entry.get("event") or entry["tool"] for entry in entries(log)]
    assert ran == ["hang", "cancelled", "inc"]


async def test_a_session_whose_claim_the_database_has_lost_is_dropped(
    start: Start, postgresql: PostgreSQL, url: str, log: Path
) -> None:
    """As after a failover to a standby that was behind: all connections end, and the last commits are gone."""
    with start("a") as owner, start("b") as other:
        async with client_of(owner) as old_client, client_of(other) as client:
            session = await opened_session(old_client)
            other_session = await opened_session(old_client)
            assert await count(old_client, session) == await count(old_client, other_session) == 1
            lost = text(
                "UPDATE session SET node = NULL, status = 'paused', epoch = 0 WHERE id = :id"
            )
            with postgresql.connection(url) as connection:
                connection.execute(lost, {"id": session})
            postgresql.disconnect()
            assert structured(await served(client, session))["count"] == 1
            await until(lambda: "the database lost commits" in owner.log)
            assert owner.log.count("the database lost commits") == 1
            # The one that was not lost keeps its connection.
            assert structured(await served(old_client, other_session))["count"] == 2
            assert structured(await served(old_client, session))["count"] == 2


@pytest.mark.parametrize("leases", [0.25, 1.5])
async def test_an_outage_of_the_database_moves_no_session(
    start: Start, postgresql: PostgreSQL, leases: float
) -> None:
    """With an outage longer than the lease the nodes wait; then they go on with the same connections."""
    with start("a") as owner, start("b"):
        async with client_of(owner) as client:
            session = await opened_session(client)
            assert await count(client, session) == 1
            postgresql.kill()
            await anyio.sleep(LEASE_SECONDS * leases)
            result = await client.call_tool("inc", {"session_id": session})
            if leases > 1:
                assert code_of(result) == "service_unavailable"
            else:
                assert structured(result)["count"] == 2
            postgresql.start()
            result = await served(client, session)
        assert structured(result)["count"] == (2 if leases > 1 else 3)
