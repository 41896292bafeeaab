"""Logins of the built-in browser over a server: imported, lent in turn, recovered and taken back."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from support.console_client import console_client
from support.gateway_process import (
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
from support.lent_logins import Shop, call, open_shop
from support.selection import matrix
from support.waiting import until

from statehold.client import connect
from statehold.client.errors import LoginBusy
from statehold.server.config.load import load
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import LOCAL
from statehold.sessions.store.base import UNCHECKED
from statehold.sessions.store.sql import SQLStore
from statehold.shell import browser_logins
from statehold.shell.parser import CommandLine

CALLS_AT_ONCE = 25


@pytest.fixture
def shop(tmp_path: Path, headless_shell: str) -> Any:
    with open_shop(tmp_path, headless_shell) as shop:
        yield shop


def stored_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


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


@pytest.mark.thorough
async def test_a_revoked_login_is_cut_within_a_second(shop: Shop) -> None:
    shop.add()
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            session = await opened_session(client)
            await call(client, "login_use", session, login="shop")
            await call(client, "browser_navigate", session, url=f"{shop.site.address}/poll")
            await shop.site.wait_answers(3)
            assert shop.run("revoke", "shop").returncode == 0
            revoked_at = time.monotonic()

            while shop.site.visits[-1].at > time.monotonic() - 1.0:
                assert "revoked" in await call(client, "login_list", session)
            refused = await client.call_tool("login_use", {"session_id": session, "login": "shop"})
            assert code_of(refused) == "login_unavailable"
            assert shop.site.visits[-1].at < revoked_at + 1.0


@pytest.mark.thorough
async def test_a_login_without_a_value_is_logged_in_by_its_first_session(shop: Shop) -> None:
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            one, two = [await opened_session(client) for _ in range(2)]
            assert "; new" in await call(client, "login_use", one, login="shop")
            await call(client, "browser_navigate", one, url=f"{shop.site.address}/in")
            await call(client, "login_release", one, login="shop")
            assert "unchecked" in await call(client, "login_use", two, login="shop")
            assert "Ada" in await call(client, "browser_navigate", two, url=shop.site.address)


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.parametrize("count", matrix(5, 30))
async def test_sessions_that_wait_get_the_login_in_the_order_of_their_requests(
    shop: Shop, count: int
) -> None:
    shop.add()
    order: list[int] = []
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client, AsyncExitStack() as stack:
            # A client sends so many requests at a time.
            waiting = [
                await stack.enter_async_context(shop.connect(running))
                for _ in range(0, count, CALLS_AT_ONCE)
            ]
            sessions = [await opened_session(client) for _ in range(count)]
            for session in sessions:
                await call(client, "login_list", session)
            await call(client, "login_use", sessions[0], login="shop")
            asked = {"session_id": sessions[-1], "login": "shop", "wait_seconds": 0}
            refused = await client.call_tool("login_use", asked)
            assert code_of(refused) == "login_busy"
            assert meta_of(refused)["statehold/error"]["retry_after_seconds"] > 0

            async def use(number: int) -> None:
                session, own = sessions[number], waiting[number // CALLS_AT_ONCE]
                await call(own, "login_use", session, login="shop", wait_seconds=60)
                order.append(number)
                await call(client, "login_release", session, login="shop")

            async with anyio.create_task_group() as tasks:
                for number in range(1, count):
                    tasks.start_soon(use, number)
                    # It waits before the next one asks.
                    await call(client, "session_info", sessions[number])
                await call(client, "login_release", sessions[0], login="shop")
    assert order == list(range(1, count))


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


@pytest.mark.thorough
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


@pytest.mark.thorough
async def test_a_command_waits_for_a_person_at_work_longer_than_for_one_who_comes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1.0
    monkeypatch.setattr(browser_logins, "LOGIN_SECONDS", seconds)
    config = load(config=shop.config, services=None, flags={"data": str(shop.data)})
    sessions: list[tuple[str, int]] = []

    with serving(shop.config, shop.data) as running:
        async with console_client(running.url) as person, SQLStore.sqlite(shop.data) as store:

            async def come(address: str) -> None:
                members = dict(parse_qsl(urlsplit(address).fragment, keep_blank_values=True))
                await person.log_in(code=members["code"])
                session = members["at"].removeprefix("s/")
                sessions.append((session, (await person.act(session, "take"))["epoch"]))

            def open_page(address: str, _: Path) -> bool:
                anyio.from_thread.run(come, address)
                return True

            monkeypatch.setattr(browser_logins, "open_page", open_page)
            arguments = CommandLine(name="shop", url_only=False)
            codes: list[int] = []

            async def log_in() -> None:
                codes.append(await browser_logins.log_in(config, store, LOCAL, arguments))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log_in)
                await until(lambda: sessions)
                [(session, epoch)] = sessions
                late_at = anyio.current_time() + 2 * seconds
                event = {"type": "address", "address": f"{shop.site.address}/in"}
                await person.post(f"/sessions/{session}/input", epoch=epoch, events=[event])
                await until(lambda: shop.site.valid and anyio.current_time() > late_at)
                await person.act(session, "give-back", epoch=epoch)
            assert codes == [0]


async def test_a_command_for_a_server_without_a_console_opens_no_session(shop: Shop) -> None:
    async with Way("stdio", "modern", shop.config, shop.data).connect() as client:
        await opened_session(client)
        refused = shop.run("add", "shop", "--url-only")
        assert (refused.returncode, "statehold serve" in refused.stderr) == (1, True)
        listed = structured(await client.call_tool("session_list", {}))["sessions"]
        assert len(listed) == 1


@pytest.mark.thorough
async def test_a_session_with_a_remote_browser_gets_a_login_in_the_other_one(shop: Shop) -> None:
    farm = {"type": "browser", "ws_endpoint": "ws://127.0.0.1:9/"}
    browser = shop.document["services"].pop("browser")
    shop.document["services"] |= {"farm": farm, "browser": browser}
    shop.config.write_text(toml(shop.document))
    with serving(shop.config, shop.data) as running:
        async with shop.connect(running) as client:
            options = {"services": ["farm", "browser"], "logins": ["shop"]}
            created = await client.call_tool("session_create", options)
            assert structured(created)["session_id"], text_of(created)


@pytest.mark.thorough
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
    shop.check("/broken")
    with serving(shop.config, shop.data):
        done = shop.run("check", "shop")
        assert (done.returncode, "ok: its last check found nothing" in done.stderr) == (1, True)


@pytest.mark.thorough
async def test_a_kill_during_a_check_leaves_the_login_to_the_next_server(shop: Shop) -> None:
    shop.site.policy = "fixed"
    shop.add()
    shop.check("/hang")
    with serving(shop.config, shop.data) as running:
        await until(lambda: shop.site.visits)
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
