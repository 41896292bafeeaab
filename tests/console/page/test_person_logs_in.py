"""A person logs in at a website from the page of logins, and sessions of agents have the login afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import anyio
import pytest
from playwright.async_api import Browser
from support.agent import agent
from support.console_page import ConsolePage, opened_console
from support.gateway_process import JSON, Way
from support.login_site import LoginSite, serve_logins
from support.waiting import until

from statehold.console.app import Console
from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import LOCAL, SessionRecord


@pytest.fixture(scope="module")
def shop() -> Generator[LoginSite]:
    with serve_logins("reuse") as site:
        yield site


@pytest.fixture(scope="module")
def settings(headless_shell: str, shop: LoginSite) -> JSON:
    browser = {"executable": headless_shell, "private": True}
    logins: JSON = {"shop": {"kind": "browser", "sites": [shop.address]}}
    for name in ("late", "other"):
        logins[name] = {"kind": "browser", "sites": [f"http://{name}.test"], "idle": 0.5}
    return {"services": {"browser": browser}, "logins": logins}


@pytest.fixture
async def window(browser: Browser, url: str, console: Console) -> AsyncGenerator[ConsolePage]:
    async with opened_console(browser, url, console) as opened:
        opened.page.set_default_timeout(15_000)
        yield opened
        assert opened.errors == []


async def open_logins(window: ConsolePage) -> None:
    await window.page.get_by_role("navigation").get_by_role("link", name="Logins").click()


async def begin(window: ConsolePage) -> str:
    """Press the button of the login, and return the session that opens."""
    page = window.page
    await open_logins(window)
    await page.get_by_role("button", name="Log in at shop").click()
    await page.get_by_text("You have control.").wait_for()
    await page.locator("button:enabled", has_text="Could not").wait_for()
    return page.url.rpartition("/")[2]


async def wait_closed(gateway: Gateway, session: str) -> None:
    async def is_closed() -> bool:
        record = await gateway.store.get(session)
        return record is not None and record.status is Status.CLOSED

    await until(is_closed)


async def test_a_person_logs_in_by_the_button_and_an_agent_has_the_login(
    window: ConsolePage, shop: LoginSite, gateway: Gateway, mcp_server: StateholdServer
) -> None:
    page = window.page
    await open_logins(window)
    await page.locator("tr", has_text="shop").get_by_text("not logged in").wait_for()
    session = await begin(window)
    region = page.get_by_role("region", name="Page")
    await region.get_by_text(f"Log in at {shop.address}, then press Done.").wait_for()
    await region.get_by_role("button", name="Shop", exact=True).wait_for()
    await page.get_by_label("Address", exact=True).fill(f"{shop.address}/in")
    await page.keyboard.press("Enter")
    await until(lambda: shop.valid)
    await page.get_by_role("button", name="Done").click()
    await page.get_by_text("Sessions get the login with login_use").wait_for()
    await page.locator("main").get_by_role("link", name="Logins").click()
    row = page.locator("tr", has_text="shop")
    await row.get_by_text("not checked").wait_for()
    await row.get_by_text("Log in again").wait_for()
    await wait_closed(gateway, session)
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way) as bob:
        await bob.said("login_use", login="shop")
        assert "Ada" in await bob.said("browser_navigate", url=shop.address)
        await bob.client.call_tool("session_close", {"session_id": bob.session})


@pytest.mark.thorough
async def test_a_revoked_login_begins_anew_and_goes_back_also_when_its_session_is_closed(
    window: ConsolePage, shop: LoginSite, gateway: Gateway
) -> None:
    logins = gateway.store.logins
    first = await gateway.browser_logins.log_in(LOCAL, "shop")
    await gateway.registry.close(LOCAL, first, force=True)
    assert await logins.revoke(LOCAL.key, "shop", 1.0)
    session = await begin(window)
    found = await logins.find(LOCAL.key, "shop")
    assert found is not None
    assert (found.state, found.session) == ("revoked", session)
    await gateway.registry.close(LOCAL, session, force=True)
    found = await logins.find(LOCAL.key, "shop")
    assert found is not None
    assert found.state == "new"
    again = await begin(window)
    assert again != session
    await window.page.get_by_role("button", name="Done").click()
    await wait_closed(gateway, again)
    found = await logins.find(LOCAL.key, "shop")
    assert found is not None
    assert (found.state, found.session) == ("new", "")


async def test_a_login_that_a_session_has_is_refused_and_leaves_no_session(
    window: ConsolePage,
    gateway: Gateway,
    mcp_server: StateholdServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("statehold.server.gateway.browser_logins.LEND_SECONDS", 0)
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way, name="holder") as bob:
        await bob.said("login_use", login="shop")
        await open_logins(window)
        await window.page.get_by_role("button", name="Log in at shop").click()
        await window.page.get_by_text("Another session has the login shop").wait_for()
        assert [each.id for each in gateway.registry.owned_sessions()] == [bob.session]


async def test_a_login_waits_for_its_person_although_no_call_comes(
    gateway: Gateway, mcp_server: StateholdServer
) -> None:
    logins = gateway.store.logins

    async def is_lent(name: str) -> bool:
        found = await logins.find(LOCAL.key, name)
        assert found is not None
        return found.lease_ends_at > 0

    async def is_idle() -> bool:
        return not await is_lent("other")

    session = await gateway.browser_logins.log_in(LOCAL, "late")
    way = Way("memory", "modern", gateway.config.data, gateway.config.data, mcp_server)
    async with agent(way, name="other") as bob:
        await bob.said("login_use", login="other")
        await until(is_idle)
        await bob.client.call_tool("session_close", {"session_id": bob.session})
    assert await is_lent("late")
    await gateway.registry.close(LOCAL, session, force=True)
    assert not await is_lent("late")


async def test_the_session_of_a_log_in_is_closed_although_the_store_did_not_answer_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await gateway.browser_logins.log_in(LOCAL, "late")
    get, has_failed = gateway.store.get, anyio.Event()

    async def fail_once(session_id: str) -> SessionRecord | None:
        if has_failed.is_set():
            return await get(session_id)
        has_failed.set()
        raise StoreUnavailable("The store does not answer.")

    monkeypatch.setattr(gateway.store, "get", fail_once)
    with anyio.fail_after(10):
        await has_failed.wait()
    controls = gateway.registry.controls
    lease = (await controls.take(LOCAL, session, "Ada")).record.control
    await controls.give_back(LOCAL, session, lease.epoch)
    await wait_closed(gateway, session)
