"""Logins of the built-in browser over a server: imported, lent in turn, recovered and taken back."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from support.console_client import console_client
from support.gateway_process import (
    Running,
    Way,
    code_of,
    kill,
    meta_of,
    opened_session,
    serving,
    statehold,
    structured,
    text_of,
    toml,
)
from support.login_site import LoginSite, serve_logins
from support.waiting import until

from statehold.client import connect
from statehold.client.errors import LoginBusy
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import LOCAL
from statehold.sessions.store.base import OK, UNCHECKED, LoginRecord
from statehold.sessions.store.sql import SQLStore
from statehold.tools.browser.logins.sites import decode_value
from statehold.tools.logins.sealing import LoginSealing


@dataclass
class Shop:
    """A site with a login, and the configuration that declares it."""

    site: LoginSite
    folder: Path
    config: Path
    document: dict[str, Any]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def check(self, path: str, **settings: Any) -> None:
        """Have the login checked by a page of the site."""
        self.document["logins"]["shop"]["check"] = {"url": self.site.address + path}
        self.document["logins"]["shop"] |= settings
        self.config.write_text(toml(self.document))

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
        yield Shop(site, tmp_path, config, document)


def stored_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


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
        cookies = {*shop.site.used, shop.site.valid}
        stored = stored_bytes(shop.data) + running.log.encode()
        assert not [cookie for cookie in cookies if cookie.encode() in stored]
        assert b"storage-token-of-ada" not in stored
        shown = shop.run("show", "shop").stdout
        assert "state: " in shown
        assert not any(cookie in shown for cookie in cookies)
    assert set(shop.site.statuses) == {200}


async def test_a_session_is_created_with_its_logins_or_not_at_all(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            created = await client.call_tool("session_create", {"name": "one", "logins": ["shop"]})
            one = structured(created)["session_id"]
            assert "Ada" in await call(client, "browser_navigate", one, url=shop.site.address)
            await client.call_tool("session_pause", {"session_id": one})
            taken = await opened_session(client)
            await call(client, "login_use", taken, login="shop")
            unknown = await client.call_tool("session_create", {"name": "two", "logins": ["shops"]})
            assert code_of(unknown) == "invalid_argument"
            listed = structured(await client.call_tool("session_list", {"name": "two"}))
            assert listed["sessions"] == []


async def test_the_client_lends_a_login_for_a_block(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with (
            connect(running.url) as client,
            client.session("one", logins=["shop"]) as one,
            client.session("two") as two,
        ):
            await one.call("browser_navigate", url=shop.site.address)
            with pytest.raises(LoginBusy):
                async with two.login("shop", wait_seconds=0):
                    pass
            await one.call("login_release", login="shop")
            async with two.login("shop"):
                shown = await two.call("browser_navigate", url=shop.site.address)
                assert "Ada" in shown.text
            async with one.login("shop"):
                pass


async def test_a_revoked_login_is_cut_within_two_seconds(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            session = await opened_session(client)
            await call(client, "login_use", session, login="shop")
            await call(client, "browser_navigate", session, url=f"{shop.site.address}/poll")
            await shop.site.wait_answers(3)
            assert shop.run("revoke", "shop").returncode == 0
            revoked_at = time.monotonic()

            while shop.site.agents[-1][0] > time.monotonic() - 1.0:
                assert "revoked" in await call(client, "login_list", session)
            refused = await client.call_tool("login_use", {"session_id": session, "login": "shop"})
            assert code_of(refused) == "login_unavailable"
            assert shop.site.agents[-1][0] < revoked_at + 2.0


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


async def test_a_session_loses_what_another_one_got_while_its_server_was_gone(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            session = await opened_session(client)
            await call(client, "login_use", session, login="shop")
            await call(client, "browser_navigate", session, url=shop.site.address)
            kill(running)
    shop.add()
    count = len(shop.site.statuses)
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            assert "this session" not in await call(client, "login_list", session)
            refused = await client.call_tool(
                "browser_navigate", {"session_id": session, "url": shop.site.address}
            )
            assert "call login_use" in text_of(refused)
            assert len(shop.site.statuses) == count
            await call(client, "login_use", session, login="shop")
            assert "Ada" in await call(client, "browser_navigate", session, url=shop.site.address)


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


@contextmanager
def logging_in(shop: Shop) -> Generator[tuple[subprocess.Popen[str], str, str]]:
    """Run `statehold logins add` until the block ends; yield it with the code and the session of its address."""
    words = [*statehold(), "logins", "add", "shop", "--url-only", "--config", str(shop.config)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, "--data", str(shop.data)], **pipes) as process:
        assert process.stdout is not None
        try:
            lines: list[str] = [process.stdout.readline() for _ in range(3)]
            address = urlsplit(lines[2].strip())
            members = dict(parse_qsl(address.fragment, keep_blank_values=True))
            assert "take" in members
            yield process, members["code"], members["at"].removeprefix("s/")
        finally:
            process.kill()


async def test_a_person_logs_in_by_a_command_and_a_session_is_lent_the_login(shop: Shop) -> None:
    refused = shop.run("add", "shop")
    assert refused.returncode == 1
    assert "statehold serve" in refused.stderr
    assert "logins import shop FILE" in refused.stderr
    assert "new" in shop.run("list").stdout
    assert "state: new" in shop.run("show", "shop").stdout
    with serving(shop.config, shop.data) as running:
        with logging_in(shop) as (command, code, session):
            async with console_client(running.url) as person:
                await person.log_in(code=code)
                epoch = (await person.act(session, "take"))["epoch"]
                event = {"type": "address", "address": f"{shop.site.address}/in"}
                await person.post(f"/sessions/{session}/input", epoch=epoch, events=[event])
                await until(lambda: shop.site.valid)
                await person.act(session, "give-back", epoch=epoch)
                said, problem = await anyio.to_thread.run_sync(command.communicate)
                assert command.returncode == 0, problem
                assert "The login shop is unchecked." in said
                assert shop.site.valid not in said + problem + running.log
        async with shop.connect(running) as client:
            one = await opened_session(client, name="cart")
            assert shop.run("lend", "shop", "cart").returncode == 0
            assert "Ada" in await call(client, "browser_navigate", one, url=shop.site.address)
            unknown = shop.run("lend", "shops", "cart")
            assert "There is no login 'shops'" in unknown.stderr


@pytest.mark.parametrize("ends", ["interrupt", "could_not"])
async def test_a_login_by_a_command_that_fails_leaves_no_session(shop: Shop, ends: str) -> None:
    expected = (130, "") if ends == "interrupt" else (1, "nobody logged in")
    with (
        serving(shop.config, shop.data) as running,
        logging_in(shop) as (command, code, session),
    ):
        async with console_client(running.url) as person, SQLStore.sqlite(shop.data) as store:
            if ends == "interrupt":
                command.send_signal(signal.SIGINT)
            else:
                await person.log_in(code=code)
                epoch = (await person.act(session, "take"))["epoch"]
                await person.act(session, "give-back", epoch=epoch, end="could_not")
            _, problem = await anyio.to_thread.run_sync(command.communicate)
            assert command.returncode == expected[0]
            assert expected[1] in problem
            record, login = await store.get(session), await store.logins.find(LOCAL.key, "shop")
            assert record is not None
            assert login is not None
            assert (record.status, login.state) == (Status.CLOSED, "new")
            assert login.lease_ends_at == 0


async def test_a_command_has_the_server_check_and_renew_a_login(shop: Shop) -> None:
    shop.add()
    assert "with a `check`" in shop.run("check", "shop").stderr
    shop.check("/")
    assert "no server runs" in shop.run("check", "shop").stderr
    with serving(shop.config, shop.data) as running:
        done = shop.run("check", "shop")
        assert (done.returncode, "is ok" in done.stdout) == (0, True), done.stderr
        shop.site.log_in()
        done = shop.run("check", "shop")
        assert (done.returncode, "needs_human: the page" in done.stderr) == (1, True)
        async with shop.connect(running) as client:
            session = await opened_session(client)
            refused = await client.call_tool("login_use", {"session_id": session, "login": "shop"})
            assert code_of(refused) == "login_unavailable"
            assert "log in again" in text_of(refused)
            listed = structured(await client.call_tool("session_list", {}))["sessions"]
            assert [each["session_id"] for each in listed] == [session]
        shop.add()
        assert shop.run("check", "shop").returncode == 0
        assert shop.site.valid not in running.log


async def test_a_kill_during_a_check_leaves_the_login_to_the_next_server(shop: Shop) -> None:
    shop.site.policy = "fixed"
    shop.add()
    shop.check("/hang")
    with serving(shop.config, shop.data) as running:
        await until(lambda: shop.site.agents)
        kill(running)
    assert not list((shop.data / "browser" / "contexts").rglob("check-*"))
    shop.site.hanging.set()
    async with SQLStore.sqlite(shop.data) as store:
        row = await store.logins.find(LOCAL.key, "shop")
        assert row is not None
        assert (row.in_check, row.state) == (1, UNCHECKED)
        # As if its lease had ended.
        await store.logins.put(replace(row, lease_ends_at=1.0))
    shop.check("/")
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            session = await opened_session(client)
            assert "; ok" in await call(client, "login_use", session, login="shop")
            assert "Ada" in await call(client, "browser_navigate", session, url=shop.site.address)
    assert set(shop.site.statuses) == {200}


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_after_each_kill_a_login_is_unchecked_or_the_newest(shop: Shop) -> None:
    chance, sealing = random.Random(7), LoginSealing(shop.data)

    async def take_turns(running: Running) -> None:
        with suppress(Exception):
            async with shop.connect(running) as client:
                sessions = [await opened_session(client) for _ in range(2)]
                while True:
                    for session in sessions:
                        await call(client, "login_use", session, login="shop")
                        await call(client, "browser_navigate", session, url=shop.site.address)
                        await call(client, "login_release", session, login="shop")

    async def find(store: SQLStore) -> LoginRecord:
        row = await store.logins.find(LOCAL.key, "shop")
        assert row is not None
        return row

    for _ in range(8):
        shop.add()
        async with SQLStore.sqlite(shop.data) as store:
            await store.logins.put(replace(await find(store), state=OK))
        with serving(shop.config, shop.data) as running:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_turns, running)
                await shop.site.wait_answers(chance.randint(1, 6))
                # Anywhere between this answer and the one after the next hand-over.
                await anyio.sleep(chance.uniform(0.0, 0.3))
                kill(running)
                tasks.cancel_scope.cancel()
        assert 401 not in shop.site.statuses
        async with SQLStore.sqlite(shop.data) as store:
            row = await find(store)
            value = decode_value(await sealing.open(row))
            is_newest = [each["value"] for each in value.cookies] == [shop.site.valid]
            # At most the answer under way at the kill is lost, and only while a session has the login.
            assert is_newest or row.lease_ends_at > 0
            again = await store.logins.take(row, row.session or "next", 1e12, 2e12)
            assert again is not None
            assert again.state == (UNCHECKED if row.lease_ends_at else OK)
