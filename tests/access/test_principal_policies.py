"""Policies of a running server: of its file, by the groups of tokens, and as `statehold principals` shows them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from support.console_client import console_client
from support.databases import PostgreSQL
from support.gateway_process import JSON, Running, modern_call, service, serving, statehold, toml
from support.hostile_issuer import AUDIENCE, HostileIssuer
from support.token_file import write_tokens
from support.waiting import until

from statehold.sessions.store.dialect.sqlite import FILE_NAME

WAYS: list[tuple[str, str]] = []
ADA, BEN, ROOT = "ada-token-0123456789", "ben-token-0123456789", "root-token-0123456789"
ADMIN = "statehold:admin"
ROUNDS = 50


@pytest.fixture(scope="module")
def settings(issuer: HostileIssuer, tmp_path_factory: pytest.TempPathFactory) -> JSON:
    tokens = write_tokens(
        tmp_path_factory.mktemp("tokens") / "tokens",
        f"{ADA} ada\n{BEN} ben\n{ROOT} root role=operator\n",
    )
    return {
        "toolsets": ["core", "lifecycle", "admin"],
        "server": {"tokens": str(tokens), "public_url": "https://mcp.example.org"},
        "auth": {
            "issuers": [{"issuer": issuer.url}],
            "audience": [AUDIENCE],
            "roles": {"staff": "operator"},
        },
        "audit": "on",
        "services": {"quick": service("quick")},
        "policies": [
            {"sessions": 5},
            {"match": {"group": "crew", "issuer": issuer.url}, "sessions": 1},
            {"match": {"role": "operator"}, "sessions": 3},
            {"match": {"principal": "ben"}, "rate": {"calls_per_minute": 1, "burst": 2}},
        ],
    }


async def call(raw: httpx2.AsyncClient, token: str, tool: str, **arguments: object) -> JSON:
    body, headers = modern_call(tool, arguments)
    given = {**headers, "authorization": f"Bearer {token}"}
    response = await raw.post("/mcp", json=body, headers=given)
    assert response.status_code == 200, response.text
    return response.json()["result"]


async def create(raw: httpx2.AsyncClient, token: str) -> str:
    result = await call(raw, token, "session_create")
    return result["structuredContent"]["session_id"]


def error_of(result: JSON) -> JSON:
    assert result["isError"]
    return result["_meta"]["statehold/error"]


def run(command: str, action: str, config_file: Path, data: Path, *words: str) -> str:
    """Run a command, and return its output."""
    flags = ["--config", str(config_file), "--data", str(data)]
    line = [*statehold(), command, action, *words, *flags]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def principals(config_file: Path, data: Path, action: str, *words: str) -> Any:
    """Run `statehold principals`, and return its JSON output."""
    return json.loads(run("principals", action, config_file, data, *words, "--json"))


async def test_a_rate_refuses_with_a_result_that_names_the_limit(raw: httpx2.AsyncClient) -> None:
    session = await create(raw, BEN)
    for _ in range(2):
        assert not (await call(raw, BEN, "get", session_id=session)).get("isError")
    result = await call(raw, BEN, "get", session_id=session)
    error = error_of(result)
    assert error["code"] == "session_limit"
    assert 0 < error["retry_after_seconds"] <= 60
    assert "rate of the policy of principal ben: 1 calls a minute" in result["content"][0]["text"]


async def test_the_groups_and_the_role_of_a_token_choose_the_policy(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    member = issuer.token(sub="member", scope=ADMIN, groups=["crew", "staff"])
    staff = issuer.token(sub="staff", scope=ADMIN, groups=["staff"])
    other = issuer.token(sub="other", scope=ADMIN)
    for token, most, source in (
        (member, 1, f"group crew of {issuer.url}"),
        (staff, 3, "role operator"),
        (ROOT, 3, "role operator"),
        (other, 5, "everybody"),
    ):
        for _ in range(most):
            await create(raw, token)
        result = await call(raw, token, "session_create")
        assert error_of(result)["code"] == "session_limit"
        assert f"sessions of the policy of {source}" in result["content"][0]["text"]
        stats = await call(raw, token, "server_stats")
        limits = stats["structuredContent"]["limits"]
        assert limits["sessions"] == {"limit": most, "source": source}


async def test_a_change_of_the_file_limits_callers_of_a_running_server(
    raw: httpx2.AsyncClient, server: Running, settings: JSON, config_file: Path
) -> None:
    await create(raw, ADA)
    former = await anyio.Path(config_file).read_text()

    async def source() -> object:
        stats = await call(raw, ADA, "server_stats")
        return stats["structuredContent"]["limits"]["sessions"]["source"]

    async def comes_from(expected: str) -> bool:
        return await source() == expected

    rule = {"match": {"principal": "ada"}, "sessions": 1}
    await anyio.Path(config_file).write_text(
        toml({**settings, "policies": [*settings["policies"], rule]})
    )
    await until(partial(comes_from, "principal ada"))
    assert error_of(await call(raw, ADA, "session_create"))["code"] == "session_limit"
    async with console_client(server.url) as console:
        await console.log_in(token=ADA)
        usage = await console.get("/usage")
        assert usage["sessions_limit"] == 1
        assert usage["limits"]["sessions"]["source"] == "principal ada"
    shown = principals(config_file, server.data, "show", "ada")
    assert shown["open_sessions"] == 1
    assert shown["stored_bytes"] > 0
    assert shown["limits"]["sessions"] == {"limit": 1, "source": "principal ada"}
    assert shown["limits"]["idle"] == {"limit": 0, "source": "default"}
    listed = principals(config_file, server.data, "list")["principals"]
    [ada] = [each for each in listed if each["subject"] == "ada"]
    assert (ada["open_sessions"], ada["policy"]) == (1, {"sessions": 1})
    # A file with a mistake changes nothing, and the next good one counts.
    await anyio.Path(config_file).write_text(toml({**settings, "policies": [{"sessions": "many"}]}))
    await until(lambda: "the former policies hold" in server.log)
    assert await source() == "principal ada"
    await anyio.Path(config_file).write_text(former)
    await until(partial(comes_from, "everybody"))
    await create(raw, ADA)


async def test_limits_that_an_earlier_version_stored_are_named_at_the_start(tmp_path: Path) -> None:
    with two_nodes(tmp_path, None):
        pass
    with closing(sqlite3.connect(tmp_path / "data" / FILE_NAME)) as database, database:
        row = ("0" * 64, "principal", "", "ada", '{"sessions":7}', "{}", "user", 1, 1.0)
        database.execute(
            "INSERT INTO principal (digest, kind, issuer, name, policy, member_of, role, version, changed_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    with two_nodes(tmp_path, None) as [node, _]:
        assert 'stored limits of principal ada belong in [[policies]]: {"sessions":7}' in node.log
        async with httpx2.AsyncClient(base_url=node.url, timeout=60) as client:
            assert await has_limit(client, 1)


def test_a_caller_that_is_not_known_is_refused(server: Running, config_file: Path) -> None:
    flags = ["--config", str(config_file), "--data", str(server.data)]
    command = [*statehold(), "principals", "show", "nobody", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr


@contextmanager
def two_nodes(folder: Path, url: str | None) -> Generator[list[Running]]:
    """Run two servers on one store, where a caller may have one session."""
    tokens = write_tokens(folder / "tokens", f"{ADA} ada\n")
    store = {} if url is None else {"store": {"url": url}}
    config = folder / "statehold.toml"
    config.write_text(
        toml(
            {
                "toolsets": ["core", "lifecycle", "admin"],
                "server": {"tokens": str(tokens)},
                "policies": [{"match": {"principal": "ada"}, "sessions": 1}],
                "services": {"quick": service("quick")},
                **store,
            }
        )
    )
    with ExitStack() as stack:
        yield [stack.enter_context(serving(config, folder / "data")) for _ in range(2)]


async def race(folder: Path, url: str | None, rounds: int) -> None:
    """Have two nodes create a session for the last place, in rounds; one of them has to win."""
    with two_nodes(folder, url) as nodes:
        clients = [httpx2.AsyncClient(base_url=node.url, timeout=60) for node in nodes]
        try:
            for number in range(rounds):
                results: list[JSON] = []

                async def attempt(
                    client: httpx2.AsyncClient, results: list[JSON] = results
                ) -> None:
                    results.append(await call(client, ADA, "session_create"))

                async with anyio.create_task_group() as tasks:
                    for client in clients:
                        tasks.start_soon(attempt, client)
                won = [result for result in results if not result.get("isError")]
                lost = [result for result in results if result.get("isError")]
                assert (len(won), len(lost)) == (1, 1), (number, results)
                assert error_of(lost[0])["code"] == "session_limit"
                session = won[0]["structuredContent"]["session_id"]
                closed = await call(clients[0], ADA, "session_close", session_id=session)
                assert not closed.get("isError"), closed
        finally:
            for client in clients:
                await client.aclose()


async def has_limit(client: httpx2.AsyncClient, sessions: int) -> bool:
    stats = await call(client, ADA, "server_stats")
    return stats["structuredContent"]["limits"]["sessions"]["limit"] == sessions


@pytest.mark.thorough
async def test_without_the_database_no_session_begins_and_a_running_call_finishes(
    tmp_path: Path, postgresql: PostgreSQL
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with two_nodes(tmp_path, postgresql.fresh()) as [node, _]:
        async with httpx2.AsyncClient(base_url=node.url, timeout=60) as client:
            session = await create(client, ADA)
            results: list[JSON] = []

            async def hold() -> None:
                results.append(await call(client, ADA, "hold", session_id=session, fifo=str(fifo)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hold)
                # The tool has opened its end then.
                with await anyio.to_thread.run_sync(lambda: fifo.open("w")):
                    postgresql.kill()
                    try:
                        refused = await call(client, ADA, "session_create")
                        assert refused["isError"], refused
                        assert (await call(client, ADA, "session_resume", session_id="none"))[
                            "isError"
                        ]
                    finally:
                        # Not in a thread: the database ends with the thread that starts it.
                        postgresql.start()
            [held] = results
            assert held["content"][0]["text"] == "held"
            assert await has_limit(client, 1)


@pytest.mark.thorough
async def test_one_of_two_nodes_gets_the_last_place_in_many_rounds(tmp_path: Path) -> None:
    await race(tmp_path, None, ROUNDS)


@pytest.mark.thorough
async def test_one_of_two_nodes_gets_the_last_place_in_postgresql(
    tmp_path: Path, postgresql: PostgreSQL
) -> None:
    await race(tmp_path, postgresql.fresh(), ROUNDS)
