"""The login in a real browser: its cookie is taken on loopback, and pages of other ports get nowhere."""

from __future__ import annotations

import json
import re

import pytest
from mcp import Client
from playwright.async_api import Browser, expect
from support.console_client import ConsoleClient, console_address
from support.gateway_process import Running, opened_session

SEND = """async ([url, method, headers]) => {
    try {
        const answer = await fetch(url, {method, headers, credentials: 'include'});
        return [answer.status, await answer.text()];
    } catch (error) {
        return [0, String(error)];
    }
}"""


async def test_a_browser_keeps_the_cookie_and_other_pages_cannot_use_it(
    server: Running, browser: Browser
) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    address = console_address(server.data)
    await page.goto(address)
    await page.get_by_role("button", name="Log out").wait_for()
    assert page.url == f"{address.partition('/console')[0]}/console/"
    login = await page.evaluate("fetch('/api/v1/me').then(answer => answer.json())")
    status, text = await page.evaluate(SEND, ["/api/v1/me", "GET", {}])
    assert (status, json.loads(text)["csrf"]) == (200, login["csrf"])
    assert await page.evaluate("document.cookie") == ""
    events = "new Promise(done => new EventSource('/api/v1/events').onopen = () => done(true))"
    assert await page.evaluate(events) is True

    # The same site, but not the same origin: the cookie is sent from there.
    other = await context.new_page()
    await other.route("http://127.0.0.1:9/**", lambda route: route.fulfill(body="other"))
    await other.goto("http://127.0.0.1:9/")
    csrf = {"x-csrf-token": login["csrf"]}
    for method, headers in (("GET", {}), ("POST", {}), ("POST", csrf)):
        url = f"{server.url}/api/v1/{'me' if method == 'GET' else 'logout'}"
        status, text = await other.evaluate(SEND, [url, method, headers])
        assert status == 0, text
        assert login["csrf"] not in text
    frame = f"document.body.append(Object.assign(document.createElement('iframe'), {{src: '{server.url}/console'}}))"
    async with other.expect_event("requestfailed") as failed:
        await other.evaluate(frame)
    assert (await failed.value).url == f"{server.url}/console"

    status, _ = await page.evaluate(SEND, ["/api/v1/logout", "POST", csrf])
    assert status == 200
    status, _ = await page.evaluate(SEND, ["/api/v1/me", "GET", {}])
    assert status == 401


async def test_a_guest_opens_a_link_and_the_timeline_has_it_in_words(
    server: Running, browser: Browser, agent: Client, alice: ConsoleClient
) -> None:
    session = await opened_session(agent)
    link = await alice.post(f"/sessions/{session}/shares", link=True, rights="view")
    page = await browser.new_page()
    await page.goto(f"{server.url}{link['path']}")
    await page.get_by_text("Gave a link to view alice at the console").wait_for()
    await page.get_by_text("Opened a link to view a guest of alice at the console").wait_for()
    assert link["code"] not in page.url


async def test_every_page_says_which_agents_ask(
    server: Running, browser: Browser, agent: Client
) -> None:
    context = await browser.new_context(permissions=["notifications"])
    page = await context.new_page()
    await page.add_init_script(
        "window.shown = []; window.Notification = class { static permission = 'granted';"
        " constructor(title, options) { shown.push([title, options.body]); } };"
        "Object.defineProperty(document, 'hidden', { get: () => true });"
    )
    await page.goto(console_address(server.data))
    await page.get_by_role("link", name="Services").click()
    session = await opened_session(agent)
    ask = {"session_id": session, "reason": "type the code", "wait_seconds": 0}
    await agent.call_tool("session_request_human", ask)
    await expect(page).to_have_title(re.compile(rf"\(\d+\) {session} asks - Statehold$"))
    # A name is bounded, and cannot go on with a sentence of the console.
    for name, word in (('\u202e"Bank\u201c\u3164 asks', "Bank asks"), ("x" * 99, "x{59}…")):
        await agent.call_tool("session_rename", {"session_id": session, "name": name})
        await expect(page).to_have_title(re.compile(f"{word} asks - Statehold$"))
    badge = page.get_by_role("status").get_by_role("link")
    assert await badge.get_attribute("href") == f"#/s/{session}"
    icon = "document.querySelector('link[rel=icon]').getAttribute('href')"
    assert await page.evaluate(icon) == "icon-asks.svg"
    # The same request is told once, however often the agent repeats it.
    await agent.call_tool("session_request_human", ask)
    assert ["A session asks for you", f"{session}\ntype the code"] in await page.evaluate("shown")
    assert len(await page.evaluate("shown")) == len({*map(str, await page.evaluate("shown"))})
    await agent.call_tool("session_close", {"session_id": session})
    await expect(page).not_to_have_title(re.compile(session))
    await context.close()


@pytest.mark.thorough
async def test_a_link_asks_before_it_is_opened_beside_a_login(
    server: Running, browser: Browser, agent: Client, alice: ConsoleClient, ben_token: str
) -> None:
    session = await opened_session(agent)
    link = await alice.post(f"/sessions/{session}/shares", link=True, rights="use")
    page = await (await browser.new_context()).new_page()
    await page.goto(f"{server.url}/console/")
    await page.get_by_label("Token").fill(ben_token)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_text("ben at the console").wait_for()
    for answer in ("Back", "Open"):
        await page.goto("about:blank")
        await page.goto(f"{server.url}{link['path']}")
        await page.get_by_text("a guest of alice at the console").wait_for()
        assert link["code"] not in page.url
        await page.get_by_role("button", name=answer).click()
        await page.get_by_text("ben at the console").first.wait_for()
    await page.get_by_role("heading", name=session).wait_for()
    assert await page.get_by_role("button", name="Pause").count() == 0
    used = (await alice.get(f"/sessions/{session}/shares"))["shares"]
    assert [each["used"] for each in used] == [True]
    await page.goto("about:blank")
    await page.goto(f"{server.url}{link['path']}")
    await page.get_by_text("The link does not work").wait_for()
    await page.get_by_role("button", name="Back").click()
    await page.goto(f"{server.url}/console/#/")
    await page.get_by_text("ben at the console").wait_for()
