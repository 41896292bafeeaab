"""The parts of the console's page beside the picture: state, forks, actions, links, timeline, the states of a session."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import pytest
from lab import Lab
from mcp import Client
from playwright.async_api import Browser, Locator, Page
from support.console_client import console_address, operator
from support.console_page import console
from support.gateway_process import (
    JSON,
    Running,
    Way,
    kill,
    opened_session,
    service,
    serving,
    toml,
)
from support.waiting import until

ALL_PAGES = ("#/", "#/services", "#/logins")
NARROW = 390
SMALL = """() => [...document.querySelectorAll("button, a, summary, select, input, label.check")].filter(part => {
    const { width, height } = part.getBoundingClientRect();
    const isLabelled = part.matches("input") && part.closest("label.check");
    return width && height && height < 39.5 && !part.matches(".skip") && !isLabelled;
}).map(part => part.outerHTML.slice(0, 100))"""


async def show(page: Page, session: str) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/s/{session}")
    await page.get_by_role("tablist").wait_for()


async def change(agent: Client, session: str, values: JSON) -> None:
    given = {"session_id": session, "values": values}
    result = await agent.call_tool("state_update", given, meta={"statehold/run_id": "r1"})
    assert not result.is_error


async def lines_of(page: Page) -> list[str]:
    """Return the lines of the difference that is shown."""
    await page.locator(".diff .member").first.wait_for()
    texts = await page.locator(".diff .member").all_inner_texts()
    return [" ".join(text.split()) for text in texts]


@pytest.mark.thorough
async def test_a_person_sees_what_is_hidden_in_a_text(agent: Client, page: Page) -> None:
    session = await opened_session(agent, name="hidden", services=["quick"])
    await change(agent, session, {"pay": "1"})
    await change(agent, session, {"pay": "10\u202e\U000e0041\u200d"})
    await show(page, session)
    assert await lines_of(page) == ['~ pay: "1" → "10\\u{202e}\\u{e0041}\u200d"']


async def choose(page: Page, name: str) -> None:
    await page.locator("summary", has_text="More").click()
    await page.locator(".menu-list").get_by_role("button", name=name).click()


@pytest.mark.thorough
async def test_the_difference_of_two_versions_has_a_sign_for_each_change(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="cart", services=["quick"])
    await change(agent, session, {"cart": {"tea": 1, "milk": 2}, "user": "ada"})
    await change(agent, session, {"cart": {"tea": 3, "milk": None, "jam": [1]}})
    await change(agent, session, {"cart": {"jam": [1, 2]}})
    await show(page, session)
    await page.get_by_label("Newer version").wait_for()
    assert await lines_of(page) == ["cart:", "jam:", "+ 1: 2"]
    await page.get_by_label("Older version").select_option("1")

    async def has_all() -> bool:
        return "~ tea: 1 → 3" in await lines_of(page)

    await until(has_all)
    lines = await lines_of(page)
    assert lines[0] == "cart:"
    assert "\u2212 milk: 2" in lines
    assert any(line.startswith("? jam: [1,2]") for line in lines)
    await page.get_by_label("All members").check()
    await page.get_by_text('user: "ada"').wait_for()


@pytest.mark.thorough
async def test_a_version_that_the_page_saw_can_be_compared_without_a_journal(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, services=["quick"], state={"n": 1})
    await show(page, session)
    await page.get_by_text("The journal leads back to version 0.").wait_for()
    await agent.call_tool("state_update", {"session_id": session, "values": {"n": 2}})
    await page.get_by_label("Older version").wait_for()
    assert await lines_of(page) == ["~ n: 1 → 2"]


@pytest.mark.thorough
async def test_the_forks_of_a_session_are_a_tree_of_links(agent: Client, page: Page) -> None:
    parent = await opened_session(agent, name="ancestor", services=["quick"])
    await agent.call_tool(
        "session_fork", {"session_id": parent, "count": 2, "names": ["first born", "second born"]}
    )
    await show(page, parent)
    await page.get_by_role("tab", name="Forks").click()
    await page.locator(".tree").get_by_role("link", name="first born").click()
    await page.get_by_role("heading", name="first born").wait_for()
    await page.get_by_role("tab", name="Forks").click()
    tree = page.locator(".tree")
    await tree.get_by_role("link", name="second born").wait_for()
    assert "ancestor" in await tree.locator("> ul > li > a").inner_text()
    assert "this one" in await tree.locator("[aria-current]").inner_text()


async def test_the_menu_renames_extends_forks_restarts_and_exports(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="before", services=["quick"])
    await opened_session(agent, name="occupied", services=["quick"])
    await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    await show(page, session)
    await choose(page, "Rename")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("occupied")
    await dialog.get_by_label("Purpose").fill("a new purpose")
    await dialog.get_by_role("button", name="Save").click()
    assert "occupied" in await dialog.get_by_role("alert").inner_text()
    await dialog.get_by_label("Name").fill("after")
    await dialog.get_by_role("button", name="Save").click()
    await page.get_by_role("heading", name="after").wait_for()
    await page.get_by_text("a new purpose").wait_for()

    await choose(page, "Extend")
    await dialog.get_by_label("By").select_option("24")
    await dialog.get_by_role("button", name="Extend").click()
    await dialog.wait_for(state="hidden")

    await choose(page, "Fork")
    await dialog.get_by_label("Names").fill("one, two")
    await dialog.get_by_role("button", name="Fork").click()
    await dialog.get_by_text("Give one name, or none.").wait_for()
    await dialog.get_by_label("Children").fill("2")
    await dialog.get_by_role("button", name="Fork").click()
    await page.get_by_role("status").get_by_role("link", name="two").wait_for()

    await choose(page, "Restart services")
    await dialog.get_by_role("checkbox").uncheck()
    await dialog.get_by_role("button", name="Restart").click()
    await dialog.get_by_text("Choose a service.").wait_for()
    await dialog.get_by_role("checkbox").check()
    await dialog.get_by_role("button", name="Restart").click()
    await page.get_by_text("Its services were restarted.").wait_for()

    await choose(page, "Export")
    async with page.expect_download() as started:
        await dialog.get_by_role("button", name="Download").click()
    download = await started.value
    assert download.suggested_filename == "after.json"
    content = json.loads(await anyio.Path(await download.path()).read_text())
    assert content["session"]["id"] == session


@pytest.mark.thorough
async def test_the_menu_is_used_by_keyboard_and_closes_a_session(agent: Client, page: Page) -> None:
    session = await opened_session(agent, name="short lived", services=["quick"])
    await show(page, session)
    more = page.locator("summary", has_text="More")
    await more.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    assert await page.locator("details.menu[open]").count() == 0
    assert page.url.endswith(session)
    await page.keyboard.press("Enter")
    await page.locator(".menu-list button:focus").wait_for()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Close it").click()
    await page.get_by_text("Closed just now").wait_for()
    assert await more.count() == 0


@pytest.mark.thorough
async def test_a_link_is_shown_once_and_revoked(
    agent: Client, page: Page, browser: Browser
) -> None:
    session = await opened_session(agent, name="shared", services=["quick"])
    await show(page, session)
    await page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Minutes").fill("5")
    await dialog.get_by_role("button", name="Make a link").click()
    address = await dialog.get_by_label("The link, shown this once").input_value()
    await dialog.get_by_role("button", name="Copy").click()
    await dialog.get_by_text("Copied").wait_for()
    assert re.search(
        r"may look, not used yet,\s+(5 min 0 s|4 min \d+ s) left", await text_of(dialog)
    )
    async with console(browser, address) as guest:
        await guest.get_by_text("View only").wait_for()
        await guest.get_by_role("heading", name="shared").wait_for()
        for name in ("Pause", "Share", "Take over"):
            assert await guest.get_by_role("button", name=name).count() == 0
        await dialog.get_by_text("in use").wait_for()
        await dialog.get_by_role("button", name="Revoke").click()
        await guest.get_by_text("This link has ended.").wait_for()
    await dialog.get_by_role("button", name="Close", exact=True).click()
    await page.get_by_role("button", name="Share").click()
    await dialog.get_by_role("button", name="Make a link").wait_for()
    assert address not in await page.content()
    assert await dialog.get_by_role("button", name="Revoke").count() == 0


async def text_of(part: Locator) -> str:
    return " ".join((await part.inner_text()).split())


async def test_a_call_shows_its_arguments_and_the_picture_after_it(
    agent: Client, page: Page, lab_site: Lab
) -> None:
    session = await opened_session(agent, name="pictured", services=["browser"])
    url = f"{lab_site.url}/counter"
    await agent.call_tool("browser_navigate", {"session_id": session, "url": url})
    await agent.call_tool("browser_take_screenshot", {"session_id": session})
    await show(page, session)
    await page.locator(".timeline summary", has_text=f"Open {url}").hover()
    peek = page.get_by_role("tooltip")
    await peek.get_by_text(url).first.wait_for()
    assert await peek.locator("img").count() == 0
    await page.locator(".timeline summary", has_text="Take a screenshot").focus()
    # Only a key shows the ring of the focus.
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Tab")
    picture = peek.get_by_alt_text("The page after browser_take_screenshot")
    await picture.wait_for()
    assert await picture.evaluate("async image => (await image.decode(), image.naturalWidth)") > 300
    await page.keyboard.press("Escape")
    await peek.wait_for(state="hidden")


@pytest.mark.thorough
async def test_a_service_without_a_picture_shows_its_words_and_all_that_failed(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="plain", services=["quick"])
    for tool in ("echo", "fail", "crash", "echo"):
        await agent.call_tool(tool, {"session_id": session, "text": "hello"})
    await show(page, session)
    assert await page.locator("sh-screen").count() == 0
    await page.get_by_role("tab", name="State", selected=True).wait_for()
    await page.get_by_label("Entries").select_option("Failures")
    failed = page.locator(".timeline li.failed")
    await until_count(page.locator(".timeline li[data-seq]"), 3)
    texts = [await text_of(failed.nth(number)) for number in range(3)]
    assert "A connection was lost: quick:" in texts[0]
    assert "crash" in texts[1]
    assert "outcome unknown" in texts[1]
    assert "fail" in texts[2]


@pytest.mark.thorough
async def test_calls_of_one_tool_in_a_row_are_one_line_that_opens(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="repeated", services=["quick"])
    for tool in ("echo", "echo", "echo", "fail", *("echo",) * 4):
        await agent.call_tool(tool, {"session_id": session, "text": "hello"})
    await show(page, session)
    group = page.locator(".timeline li.group")
    await group.wait_for()
    assert "echo \u00d7 4" in await text_of(group)
    entries = page.locator(".timeline li[data-seq]").filter(has_text="echo")
    assert await entries.count() == 3
    await page.locator(".timeline li.group > details > summary").focus()
    await page.keyboard.press("Enter")
    await until_count(group.locator("li[data-seq]"), 4)
    await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    await until_count(group.locator("li[data-seq]"), 5)
    assert await page.locator(".timeline li.failed").count() == 1


async def until_count(found: Locator, count: int) -> None:
    async def has_count() -> bool:
        return await found.count() == count

    await until(has_count)


@pytest.mark.thorough
async def test_the_list_has_a_page_of_rows_in_the_order_of_the_server(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="row 000", services=["quick"])
    names = [f"row {number:03}" for number in range(1, 71)]
    await agent.call_tool("session_fork", {"session_id": session, "count": 70, "names": names})
    await page.get_by_label("Order").select_option("name")
    await page.get_by_label("Search").fill("row 0")
    rows = page.locator("tbody tr")

    async def is_first_page() -> bool:
        return await rows.count() == 60 and "row 000" in await rows.first.inner_text()

    await until(is_first_page)
    await page.get_by_role("button", name="Next").click()
    await page.get_by_text("row 060").wait_for()
    assert await rows.count() == 11
    assert "row 070" in await rows.last.inner_text()
    await page.get_by_label("Search").fill("nothing of this kind")
    await page.get_by_text("No session fits.").wait_for()
    # The jump asks the server for what the page does not know.
    await page.get_by_role("button", name="Jump to a session").click()
    await page.get_by_role("combobox", name="Name, purpose or id").fill("row 07")
    await page.get_by_role("option", name="row 070").click()
    await page.get_by_role("heading", name="row 070").wait_for()


async def test_a_session_that_is_unknown_says_so(page: Page) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/s/sh_aaaaaaaaaaaaaaaaaaaaaaaaaa")
    await page.get_by_text("There is no such session").wait_for()


@pytest.mark.thorough
async def test_on_a_phone_nothing_scrolls_sideways_and_targets_are_large(
    server: Running, agent: Client, browser: Browser
) -> None:
    long = "a very long name of a session that does not fit"
    session = await opened_session(agent, name=long, services=["quick"], state={"n": "x" * 400})
    await agent.call_tool("echo", {"session_id": session, "text": "y" * 400})
    async with console(browser, console_address(server.data), width=NARROW) as phone:
        base = phone.url.partition("#")[0]
        for place in (*ALL_PAGES, f"#/s/{session}"):
            await phone.goto(f"{base}{place}")
            await phone.get_by_role("heading").first.wait_for()
            await check_narrow(phone)
        for tab in ("Services", "Log", "Forks", "Files", "State"):
            await phone.get_by_role("tab", name=tab).click()
            await check_narrow(phone)
        await choose(phone, "Fork")
        await check_narrow(phone)
        await phone.get_by_role("button", name="Cancel").click()
        await phone.get_by_role("button", name="Share").click()
        await phone.get_by_role("button", name="Make a link").click()
        await phone.get_by_role("button", name="Copy").wait_for()
        await check_narrow(phone)


async def check_narrow(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW, page.url
    assert await page.evaluate(SMALL) == [], page.url


@pytest.mark.thorough
async def test_after_the_end_of_the_server_the_page_says_so_goes_on_and_shows_the_end_of_its_login(
    tmp_path: Path, browser: Browser
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, data) as first, serving(config, data) as second:
        way = Way("http", "modern", config, data, url=second.url)
        async with way.connect() as agent:
            session = await opened_session(agent, name="orphan")
            await agent.call_tool("echo", {"session_id": session, "text": "hello"})
            async with console(browser, console_address(data, first.url)) as page:
                await show(page, session)
                kill(second)
                await page.get_by_text(re.compile("process that hold")).wait_for()
                kill(first)
                await page.get_by_text("The server does not answer.").wait_for()
                await page.get_by_text("Connection lost, trying again").wait_for()
                port = first.url.rpartition(":")[2]
                with serving(config, data, "--port", port) as third:
                    await page.get_by_text("Connection lost, trying again").wait_for(state="hidden")
                    async with operator(data, third.url) as root:
                        await root.post("/logout", everywhere=True)
                    await page.get_by_text("Your login has ended").wait_for()


@pytest.mark.thorough
async def test_a_long_timeline_and_many_browsers_leave_the_page_usable(
    agent: Client, page: Page, lab_site: Lab
) -> None:
    session = await opened_session(agent, name="long", services=["quick"])
    for number in range(1150):
        note = {"session_id": session, "role": "user", "content": f"note {number}"}
        await agent.call_tool("session_note", note)
    await show(page, session)
    rows = page.locator(".timeline li[data-seq]")
    await until_count(rows, 100)
    for _ in range(11):
        before = await rows.last.get_attribute("data-seq")
        await page.get_by_role("button", name="Older").click()

        async def has_older(before: str | None = before) -> bool:
            return await rows.last.get_attribute("data-seq") != before

        await until(has_older)
    assert await rows.count() == 1000
    await page.get_by_role("button", name="Newest").click()
    await until_count(rows, 100)
    # Each picture takes one of the six connections that a browser has to a server.
    for number in range(7):
        each = await opened_session(agent, name=f"tile {number}", services=["browser"])
        url = f"{lab_site.url}/counter"
        await agent.call_tool("browser_navigate", {"session_id": each, "url": url})
    await page.goto(f"{page.url.partition('#')[0]}#/")
    tiles = page.locator("a.tile", has_text="tile")
    await until_count(tiles, 7)

    async def are_drawn() -> bool:
        return await page.locator("a.tile .veil").count() == 0

    await until(are_drawn)
    await tiles.first.click()
    await page.get_by_role("tablist").wait_for()
