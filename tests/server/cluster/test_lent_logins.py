"""A login of the built-in browser that sessions of several nodes have in turn."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from support.cluster_nodes import Nodes, Start
from support.gateway_process import code_of, opened_session
from support.lent_logins import Shop, StoredLogin, Turns, call, keyring_of
from support.login_site import serve_logins

from statehold.sessions.store.sql import SQLStore

SEALING_KEY = "sealing-key-of-the-tests-0123456789"
HAND_OVERS = 30
"""It has been run with a thousand."""
ROUNDS = 2
SESSIONS = 20
pytestmark = [pytest.mark.fault, pytest.mark.thorough, pytest.mark.timeout(300)]


class Shops(Nodes):
    """Nodes with browsers, to whose sessions the login of one site is lent."""

    def __init__(self, start: Start, shop: Shop, executable: str, url: str) -> None:
        more = {**shop.settings(executable), "sealing": {"keys": [SEALING_KEY]}}
        super().__init__(start, more)
        self.shop = shop
        self._url = url

    @asynccontextmanager
    async def login(self) -> AsyncGenerator[StoredLogin]:
        async with SQLStore.remote(self._url, keyring=keyring_of(SEALING_KEY)) as store:
            yield StoredLogin(store, self.shop.site)

    async def save(self) -> None:
        self.shop.site.log_in()
        async with self.login() as login:
            await login.save()

    @asynccontextmanager
    async def clients(self) -> AsyncGenerator[dict[str, Client]]:
        """A client of each node."""
        async with AsyncExitStack() as stack:
            yield {
                name: await stack.enter_async_context(self.shop.connect(running))
                for name, running in self.running.items()
            }


@pytest.fixture
def nodes(start: Start, tmp_path: Path, headless_shell: str, url: str) -> Generator[Shops]:
    with serve_logins() as site:
        shops = Shops(start, Shop(site, tmp_path, tmp_path / "a.toml"), headless_shell, url)
        try:
            yield shops
        finally:
            shops.stop()


async def test_a_login_with_reuse_detection_survives_hand_overs_between_nodes(
    nodes: Shops,
) -> None:
    """Both pages ask every 20 ms, whether their session has the login or not."""
    site = nodes.shop.site
    for name in ("a", "b"):
        nodes.run(name)
    await nodes.save()
    async with nodes.clients() as clients:
        turns = Turns(site, "/poll")
        sessions = [(client, await opened_session(client)) for client in clients.values()]
        for number in range(HAND_OVERS):
            await turns.take(*sessions[number % 2], answers=3)
    assert set(site.statuses) == {200}
    assert turns.intruders() == []
    async with nodes.login() as login:
        assert await login.cookie() == site.valid


async def test_a_killed_node_costs_one_request_at_most(nodes: Shops) -> None:
    """Another node goes on with the session of the killed one, which may have the login."""
    chance, turns = random.Random(9), Turns(nodes.shop.site)
    for number in range(ROUNDS):
        for name in {"a", "b"} - nodes.running.keys():
            nodes.run(name)
        await nodes.save()
        turns.begin(number)
        killed, other = chance.sample(["a", "b"], 2)
        sessions: dict[str, str] = {}

        async def use(sessions: dict[str, str] = sessions) -> None:
            # A node ends under it.
            with suppress(Exception):
                async with nodes.clients() as clients:
                    for name, client in clients.items():
                        sessions[name] = await opened_session(client)
                    await turns.run([(clients[name], sessions[name]) for name in sessions])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            await turns.wait_for_a_moment(chance)
            turns.is_over = True
            nodes.kill(killed)
            tasks.cancel_scope.cancel()
        async with nodes.login() as login, nodes.clients() as clients:
            is_newest, row = await login.check_after_kill(), await login.row()
            had_it = row.session == sessions[killed] and row.lease_ends_at > 0
            text = await call(clients[other], "login_list", sessions[killed])
            assert ("unchecked, this session has it" in text) == had_it, text
            for session in sessions.values():
                await clients[other].call_tool("session_close", {"session_id": session})
            await login.check_next_holder()
            # The page that goes on at the other node has no newer cookie than the store.
            assert not is_newest or 401 not in nodes.shop.site.statuses
        assert turns.intruders() == []


async def test_no_request_has_a_login_a_second_after_it_was_revoked(nodes: Shops) -> None:
    """One of many sessions has it, and the others wait for it."""
    site = nodes.shop.site
    for name in ("a", "b", "c"):
        nodes.run(name)
    await nodes.save()
    codes: list[str] = []
    revoked_at = 0.0
    async with nodes.clients() as clients:
        callers = [(each, await opened_session(each)) for each in clients.values()]
        holder, session = callers.pop()
        await call(holder, "login_use", session, login="shop")
        await call(holder, "browser_navigate", session, url=f"{site.address}/poll?by={session}")

        async def ask(client: Client, session: str) -> None:
            arguments: dict[str, Any] = {"login": "shop", "wait_seconds": 60}
            result = await client.call_tool("login_use", {"session_id": session, **arguments})
            codes.append(code_of(result))

        async with anyio.create_task_group() as tasks:
            for number in range(SESSIONS - 1):
                client = list(clients.values())[number % len(clients)]
                asking = await opened_session(client)
                await call(client, "login_list", asking)
                tasks.start_soon(ask, client, asking)
            await site.wait_answers(3)
            revoked = await anyio.to_thread.run_sync(nodes.shop.run, "revoke", "shop")
            revoked_at = time.monotonic()
            assert revoked.returncode == 0, revoked.stderr
        while time.monotonic() < max(revoked_at, site.visits[-1].at) + 2.0:
            assert "revoked" in await call(holder, "login_list", session)
    assert codes == ["login_unavailable"] * (SESSIONS - 1)
    assert site.visits[-1].at - revoked_at < 1.0
    assert {each.by for each in site.visits} == {session}
