"""People log in at the console in a real browser, at a real OpenID provider."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import Browser, Page, async_playwright
from support.console_states import take_picture
from support.gateway_process import Running, opened_session, service, serving, structured, toml
from test_real_issuer import PROGRAM, Login, free_port

AXE: Final = Path(__file__).parents[1] / "peers" / "node_modules" / "axe-core" / "axe.min.js"
CHECK: Final = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
    rule => `${rule.id}: ${rule.nodes.map(node => node.html.slice(0, 160)).join(" | ")}`)"""
OVERFLOW: Final = (
    "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
)


@pytest.fixture(scope="module")
def provider(npm_peers: object) -> Generator[str]:
    """The URL of an OpenID provider."""
    with subprocess.Popen(["node", str(PROGRAM)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    port, folder = free_port(), tmp_path_factory.mktemp("accounts")
    # Another site than that of the provider, which decides about the cookies that a browser sends.
    url = f"http://localhost:{port}"
    metadata = {
        "redirect_uris": [f"{url}/console/callback"],
        "application_type": "native",
        "token_endpoint_auth_method": "client_secret_basic",
    }
    client = httpx2.post(f"{provider}/reg", json=metadata).json()
    auth = {
        "issuers": [{"issuer": provider}],
        "audience": [f"{url}/mcp"],
        "roles": {"operators": "operator"},
        "console": {key: client[key] for key in ("client_id", "client_secret")},
    }
    settings = {
        "server": {"public_url": url},
        "auth": auth,
        "services": {"quick": service("quick")},
    }
    config = folder / "statehold.toml"
    config.write_text(toml(settings))
    with serving(config, folder / "data", "--port", str(port)) as running:
        running.url = url
        yield running


@pytest.fixture
async def browser(headless_shell: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=headless_shell)
        yield started
        await started.close()


@asynccontextmanager
async def person(
    browser: Browser, provider: str, account: str, **look: Any
) -> AsyncGenerator[Page]:
    """A browser of a person whom the provider knows."""
    async with await browser.new_context(**look) as context:
        await context.add_cookies([{"name": "account", "value": account, "url": provider}])
        yield await context.new_page()


async def log_in(page: Page, url: str) -> None:
    await page.goto(url)
    await page.get_by_role("link", name="Log in with 127.0.0.1").click()
    await page.get_by_role("button", name="Log out").wait_for()


async def cookies(page: Page, url: str) -> dict[str, Any]:
    return {cookie.get("name", ""): cookie for cookie in await page.context.cookies(url)}


@pytest.mark.thorough
async def test_a_person_finds_the_sessions_of_its_clients_at_the_console(
    server: Running, provider: str, browser: Browser
) -> None:
    sessions: dict[str, str] = {}
    for account in ("alice", "ben"):
        login = Login(server, account)
        async with login.connect() as client:
            sessions[account] = await opened_session(client, name=f"work of {account}")
        await login.person.aclose()
    async with person(browser, provider, "alice") as page:
        # The address of the session that the person wanted survives the login.
        await log_in(page, f"{server.url}/console/#/s/{sessions['alice']}")
        await page.get_by_role("heading", name="work of alice").wait_for()
        assert urlsplit(page.url).fragment == f"/s/{sessions['alice']}"
        found = await cookies(page, server.url)
        assert found["__Host-statehold"]["sameSite"] == "Strict"
        assert "__Host-statehold-attempt" not in found
        await page.goto(f"{server.url}/console/#/")
        await page.get_by_role("link", name="work of alice").wait_for()
        assert await page.get_by_role("link", name="work of ben").count() == 0
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_role("link", name="Log in with 127.0.0.1").wait_for()
        assert "__Host-statehold" not in await cookies(page, server.url)


@pytest.mark.thorough
async def test_an_answer_for_another_browser_is_refused(
    server: Running, provider: str, browser: Browser
) -> None:
    callback = f"{server.url}/console/callback?"
    url = f"{server.url}/console/login"
    async with httpx2.AsyncClient(cookies={"account": "ben"}, timeout=60) as attacker:
        while not url.startswith(callback):
            url = str(httpx2.URL(url).join((await attacker.get(url)).headers["location"]))
    async with person(browser, provider, "alice") as page:
        await page.goto(url)
        await page.get_by_text("The login did not succeed").wait_for()
        assert await page.get_by_role("button", name="Log out").count() == 0
        await log_in(page, f"{server.url}/console/")
        assert await page.get_by_title("You").text_content() == "alice at the console"


@pytest.mark.thorough
async def test_an_operator_closes_a_session_without_seeing_its_content(
    server: Running, provider: str, browser: Browser
) -> None:
    login = Login(server, "alice")
    async with login.connect() as client:
        session = await opened_session(client, name="a secret name")
    await login.person.aclose()
    async with person(browser, provider, "alice") as page:
        await log_in(page, f"{server.url}/console/")
        assert await page.get_by_role("link", name="All owners").count() == 0
    async with person(browser, provider, "olga") as page:
        await log_in(page, f"{server.url}/console/")
        await page.get_by_role("link", name="All owners").click()
        await page.get_by_role("button", name=f"Close {session} of alice").click()
        assert "a secret name" not in await page.content()
        await page.get_by_role("button", name="Close it").click()
        await page.get_by_role("button", name=f"Close {session} of alice").wait_for(
            state="detached"
        )
    async with login.connect() as client:
        shown = structured(await client.call_tool("session_info", {"session_id": session}))
        assert (shown["status"], shown["reason"]) == ("closed", "operator")


@pytest.mark.thorough
async def test_a_person_shares_a_session_with_another(
    server: Running, provider: str, browser: Browser
) -> None:
    login = Login(server, "alice")
    async with login.connect() as client:
        session = await opened_session(client, name="work to share")
    await login.person.aclose()
    async with person(browser, provider, "alice") as page, person(browser, provider, "ben") as other:  # fmt: skip
        await log_in(page, f"{server.url}/console/#/s/{session}")
        await page.get_by_role("button", name="Share …").click()
        await page.get_by_label("a person").check()
        await page.get_by_label("Account of the person").fill("ben")
        await page.get_by_role("button", name="Share", exact=True).click()
        await page.get_by_text("may look, ").wait_for()
        await log_in(other, f"{server.url}/console/")
        await other.get_by_role("heading", name="Shared with you").wait_for()
        await other.get_by_role("link", name="work to share").click()
        await other.get_by_text("Shared with you, to look only").wait_for()
        assert await other.get_by_role("button", name="Share …").count() == 0
        await page.get_by_role("button", name="Revoke the share with ben").click()
        await other.get_by_role("heading", name="There is no such session").wait_for()


async def states(
    page: Page, other: Page, operator: Page, server: Running, session: str
) -> AsyncGenerator[tuple[str, Page]]:
    """Bring the pages of an owner, another person and an operator into one state after the other, and name each."""
    url = f"{server.url}/console/"
    await page.goto(f"{url}#failed=login_failed")
    await page.get_by_role("link", name="Log in with 127.0.0.1").wait_for()
    await page.get_by_text("Log in with a token").click()
    yield "login-account", page
    await log_in(page, f"{url}#/s/{session}")
    await page.get_by_role("button", name="Share …").click()
    await page.get_by_label("a person").check()
    await page.get_by_label("Account of the person").fill("ben")
    await page.get_by_role("button", name="Share", exact=True).click()
    await page.get_by_text("may look, ").wait_for()
    yield "session-share-person", page
    await log_in(other, url)
    link = other.locator(f"a[href='#/s/{session}']")
    await link.wait_for()
    yield "overview-shared", other
    await link.click()
    await other.get_by_text("Shared with you, to look only").wait_for()
    yield "session-shared", other
    await log_in(operator, url)
    await operator.get_by_role("link", name="All owners").click()
    button = operator.get_by_role("button", name=f"Close {session} of alice")
    await button.wait_for()
    yield "operator", operator
    await button.click()
    await operator.get_by_role("button", name="Close it").wait_for()
    yield "operator-close", operator


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 800), ("dark", 390)])
async def test_the_pages_of_accounts_pass_the_checks_of_accessibility(
    server: Running, provider: str, browser: Browser, scheme: Any, width: int
) -> None:
    login = Login(server, "alice")
    async with login.connect() as client:
        metadata = {"purpose": "Buy notebooks for the workshop"}
        arguments = {"name": f"work of alice {scheme} {width}", "metadata": metadata}
        session = await opened_session(client, **arguments, services=["quick"])
        await client.call_tool("inc", {"session_id": session})
    await login.person.aclose()
    found: dict[str, list[str]] = {}
    look: dict[str, Any] = {
        "viewport": {"width": width, "height": 900 if width > 390 else 844},
        "color_scheme": scheme,
    }
    async with (
        person(browser, provider, "alice", **look) as page,
        person(browser, provider, "ben", **look) as other,
        person(browser, provider, "olga", **look) as operator,
    ):
        async for state, shown in states(page, other, operator, server, session):
            await shown.evaluate(AXE.read_text())
            problems: list[str] = await shown.evaluate(CHECK)
            if await shown.evaluate(OVERFLOW) > 0:
                problems.append("scrolls sideways")
            if problems:
                found[state] = problems
            await take_picture(shown, state)
        await operator.get_by_role("button", name="Close it").click()
    assert found == {}
