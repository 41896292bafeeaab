"""Kills while two sessions have a login in turn: never both have it, and at most one request is lost."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest
from mcp import Client
from support.agent import is_browser, tree_of
from support.gateway_process import Running, kill, opened_session, serving
from support.lent_logins import Shop, StoredLogin, Turns, open_shop

from statehold.sessions.store.sql import SQLStore

ROUNDS = 4
"""Kills of each test; it has been run with a hundred."""
pytestmark = [pytest.mark.fault, pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture
def shop(tmp_path: Path, headless_shell: str) -> Generator[Shop]:
    with open_shop(tmp_path, headless_shell) as shop:
        yield shop


async def save(shop: Shop) -> None:
    shop.site.log_in()
    async with SQLStore.sqlite(shop.data) as store:
        await StoredLogin(store, shop.site).save()


async def check(shop: Shop) -> None:
    async with SQLStore.sqlite(shop.data) as store:
        login = StoredLogin(store, shop.site)
        await login.check_after_kill()
        await login.check_next_holder()


async def use(shop: Shop, running: Running, turns: Turns, sessions: list[str]) -> None:
    """Close the sessions of the last round, and lend the login to new ones."""
    # The server ends under it.
    with suppress(Exception):
        async with shop.connect(running) as client:
            for session in sessions:
                await client.call_tool("session_close", {"session_id": session})
            sessions[:] = [await opened_session(client) for _ in range(2)]
            await turns.run([(client, session) for session in sessions])


async def test_a_killed_server_costs_one_request_at_most(shop: Shop) -> None:
    chance, turns, sessions = random.Random(7), Turns(shop.site), list[str]()
    shop.data.mkdir()
    for number in range(ROUNDS):
        await save(shop)
        turns.begin(number)
        with serving(shop.config, shop.data) as running:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use, shop, running, turns, sessions)
                await turns.wait_for_a_moment(chance)
                kill(running)
                tasks.cancel_scope.cancel()
        assert turns.intruders() == []
        await check(shop)


async def test_a_killed_browser_costs_one_request_at_most(shop: Shop) -> None:
    chance, turns = random.Random(8), Turns(shop.site)
    shop.data.mkdir()
    with serving(shop.config, shop.data) as running:
        for number in range(ROUNDS):
            await save(shop)
            turns.begin(number)
            async with shop.connect(running) as client:
                sessions = [(client, await opened_session(client)) for _ in range(2)]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(until_error, turns, sessions)
                    await turns.wait_for_a_moment(chance)
                    turns.is_over = True
                    kill_browsers(running)
                for _, session in sessions:
                    await client.call_tool("session_close", {"session_id": session})
            assert turns.intruders() == []
            await check(shop)


def kill_browsers(running: Running) -> None:
    for process in tree_of(running):
        with suppress(psutil.Error):
            if is_browser(process):
                process.kill()


async def until_error(turns: Turns, sessions: list[tuple[Client, str]]) -> None:
    with suppress(AssertionError):
        await turns.run(sessions)
