"""Logins of the built-in browser over a server: imported, lent in turn, recovered and taken back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    Running,
    Way,
    code_of,
    kill,
    meta_of,
    opened_session,
    serving,
    statehold,
    text_of,
    toml,
)
from support.login_site import LoginSite, serve_logins


@dataclass
class Shop:
    """A site with a login, and the configuration that declares it."""

    site: LoginSite
    folder: Path
    config: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*statehold(), "logins", *words, "--config", str(self.config)]
        return subprocess.run(
            [*command, "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def add(self) -> None:
        """Log in at the site, and store the login."""
        self.site.log_in()
        file = self.folder / "state.json"
        file.write_text(json.dumps(self.site.state()))
        done = self.run("import", "shop", str(file))
        assert done.returncode == 0, done.stderr
        assert self.site.valid not in done.stdout + done.stderr

    @asynccontextmanager
    async def connect(self, running: Running) -> AsyncGenerator[Client]:
        way = Way("http", "modern", self.config, self.data, url=running.url)
        async with way.connect() as client:
            yield client


@pytest.fixture
def shop(tmp_path: Path, headless_shell: str) -> Any:
    with serve_logins("reuse") as site:
        browser = {"executable": headless_shell, "private": True}
        logins = {"shop": {"kind": "browser", "sites": [site.address]}}
        config = tmp_path / "statehold.toml"
        document: dict[str, Any] = {
            "toolsets": ["core", "lifecycle"],
            "recovery": {"backoff": [0.05, 1, 5]},
            "services": {"browser": browser},
            "logins": logins,
        }
        config.write_text(toml(document))
        yield Shop(site, tmp_path, config)


async def call(client: Client, tool: str, session: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, {"session_id": session, **arguments})
    assert not result.is_error, text_of(result)
    return text_of(result)


async def test_a_login_is_imported_lent_and_taken_back(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            one, two = [await opened_session(client) for _ in range(2)]
            await call(client, "login_use", one, login="shop")
            assert "Ada" in await call(client, "browser_navigate", one, url=shop.site.address)
            refused = await client.call_tool(
                "login_use", {"session_id": two, "login": "shop", "wait_seconds": 0}
            )
            assert code_of(refused) == "login_busy"
            assert meta_of(refused)["statehold/error"]["retry_after_seconds"] > 0
            assert shop.run("take-back", "shop").returncode == 0
            await call(client, "login_use", two, login="shop", wait_seconds=10)
            assert "Ada" in await call(client, "browser_navigate", two, url=shop.site.address)
            assert "was taken back" in await call(client, "browser_snapshot", one)
            assert shop.run("take-back", "shop").returncode == 0
        assert shop.site.valid not in running.log
    assert set(shop.site.statuses) == {200}


async def test_a_login_without_a_value_is_logged_in_by_its_first_session(shop: Shop) -> None:
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            one, two = [await opened_session(client) for _ in range(2)]
            assert "; new" in await call(client, "login_use", one, login="shop")
            await call(client, "browser_navigate", one, url=f"{shop.site.address}/in")
            await call(client, "login_release", one, login="shop")
            assert "unchecked" in await call(client, "login_use", two, login="shop")
            assert "Ada" in await call(client, "browser_navigate", two, url=shop.site.address)


async def test_a_login_comes_back_to_its_session_after_the_server_was_killed(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            session = await opened_session(client)
            await call(client, "login_use", session, login="shop")
            await call(client, "browser_navigate", session, url=shop.site.address)
            kill(running)
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            text = await call(client, "login_list", session)
            assert "unchecked, this session has it" in text
            assert "Ada" in await call(client, "browser_navigate", session, url=shop.site.address)
    assert set(shop.site.statuses) == {200}


async def test_sessions_that_wait_get_the_login_in_the_order_of_their_requests(shop: Shop) -> None:
    shop.add()
    order: list[int] = []
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            sessions = [await opened_session(client) for _ in range(5)]
            for session in sessions:
                await call(client, "login_list", session)
            await call(client, "login_use", sessions[0], login="shop")

            async def use(number: int) -> None:
                await call(client, "login_use", sessions[number], login="shop", wait_seconds=30)
                order.append(number)
                await call(client, "login_release", sessions[number], login="shop")

            async with anyio.create_task_group() as tasks:
                for number in range(1, 5):
                    tasks.start_soon(use, number)
                    # It waits before the next one asks.
                    await call(client, "session_info", sessions[number])
                await call(client, "login_release", sessions[0], login="shop")
    assert order == [1, 2, 3, 4]
