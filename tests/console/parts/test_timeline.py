"""The timeline of a session in the console: its words, its filters, its downloads and the pictures of its steps."""

from __future__ import annotations

import json

import anyio
import pytest
from lab import Lab
from mcp import Client
from playwright.async_api import Browser, Page
from support.console_client import console_address
from support.console_page import console
from support.gateway_process import Running, opened_session
from support.waiting import until

FORM = (
    "document.title = 'Login'; document.body.innerHTML = '<label>Password <input type=password></label>"
    '<label>He said "so" <input></label><button>Log in</button>\''
)


async def show(page: Page, session: str) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/s/{session}")
    await page.locator("sh-timeline li").first.wait_for()


async def lines_of(page: Page) -> list[str]:
    """Return the words of the entries, the newest first."""
    texts = await page.locator(".timeline li .what").all_inner_texts()
    return [" ".join(text.split()) for text in texts]


async def until_lines(page: Page, *lines: str) -> None:
    async def are_there() -> bool:
        return await lines_of(page) == list(lines)

    await until(are_there)


async def saved(page: Page, form: str) -> str:
    async with page.expect_download() as started:
        await page.get_by_role("button", name=f"Download as {form}").click()
    return await anyio.Path(await (await started.value).path()).read_text()


async def test_the_timeline_says_in_words_what_was_done_and_is_searched_and_downloaded(
    agent: Client, page: Page, lab_site: Lab
) -> None:
    session = await opened_session(agent, name="worded", services=["browser"])

    async def call(tool: str, **arguments: object) -> None:
        await agent.call_tool(tool, {"session_id": session, **arguments})

    url = f"{lab_site.url}/counter"
    await call("browser_navigate", url=url)
    await call("browser_evaluate", function=f"() => {{ {FORM} }}")
    await call("browser_type", target="getByRole('textbox', { name: 'Password' })", text="secret")
    await call("browser_click", target="getByRole('button', { name: 'Log in' })")
    await call("browser_take_screenshot")
    await call("session_note", role="user", content="<b>bold</b> words")
    await show(page, session)
    lines = await lines_of(page)
    assert lines[0] == "User: <b>bold</b> words"
    assert lines[1] == "Take a screenshot"
    assert lines[2:4] == ["Click Log in", "Type into Password"]
    assert lines[-2:] == [f"Open {url}", "Opened"]
    await page.get_by_text("Pictures of the steps").click()
    picture = page.get_by_alt_text("The page at")
    assert await picture.evaluate("async image => (await image.decode(), image.naturalWidth)") > 300
    await page.get_by_label("Search the timeline").fill("password")
    await page.get_by_label("Entries").select_option("Calls")

    async def is_found() -> bool:
        found = await lines_of(page)
        return "Type into Password" in found and "Opened" not in found

    await until(is_found)
    entries = json.loads(await saved(page, "JSON"))["entries"]
    assert "browser_type" in [entry["tool"] for entry in entries]
    assert {entry["kind"] for entry in entries} == {"call"}
    assert "  Type into Password (" in await saved(page, "Text")


@pytest.mark.thorough
async def test_each_kind_of_entry_is_shown_alone_in_words(agent: Client, page: Page) -> None:
    session = await opened_session(agent, name="kinds", services=["quick"])

    async def call(tool: str, **arguments: object) -> None:
        await agent.call_tool(tool, {"session_id": session, **arguments})

    await call("echo", text="hello\n\u202ethere")
    await call("crash", text="hello")
    await call("echo", text="again")
    await call("session_pause")
    await call("session_resume")
    await call("session_request_human", reason="Look", wait_seconds=0)
    await show(page, session)
    choice = page.get_by_label("Entries")
    await choice.select_option("Changes of status")
    await until_lines(
        page,
        "Resumed on request",
        "Paused on request",
        "Recovered: quick is open again",
        "A connection was lost: quick: the process exited with code 3; it last said: quick: crashing as asked",
        "Opened",
    )
    await choice.select_option("People")
    await until_lines(page, "The agent asks for a person: Look")
    await choice.select_option("Messages")
    await page.get_by_text("There is nothing of this kind.").wait_for()
    await choice.select_option("Failures")
    await until_lines(
        page,
        "A connection was lost: quick: the process exited with code 3; it last said: quick: crashing as asked",
        "crash hello",
    )


@pytest.mark.thorough
async def test_a_search_reads_older_entries_and_a_download_reads_all(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="older", services=["quick"])
    for number in range(350):
        note = {"session_id": session, "role": "user", "content": f"note {number}"}
        await agent.call_tool("session_note", note)
    await agent.call_tool("echo", {"session_id": session, "text": "x" * 20_000})
    await show(page, session)
    await page.get_by_label("Search the timeline").fill("note 7")
    newest = [f"User: note {number}" for number in (*range(79, 69, -1), 7)]
    await until_lines(page, *newest)
    await page.get_by_label("Search the timeline").fill("")
    await page.get_by_text("echo").first.wait_for()
    entries = json.loads(await saved(page, "JSON"))["entries"]
    assert [entry["seq"] for entry in entries] == list(range(1, 353))
    assert not any("cut" in entry for entry in entries)
    assert entries[-1]["arguments"]["bytes"] > 20_000
    assert len((await saved(page, "Text")).splitlines()) == 352


@pytest.mark.thorough
async def test_pictures_are_scrubbed_by_keyboard_in_the_zone_of_the_person(
    server: Running, agent: Client, browser: Browser, lab_site: Lab
) -> None:
    session = await opened_session(agent, name="scrubbed", services=["browser"])
    url = f"{lab_site.url}/counter"
    await agent.call_tool("browser_navigate", {"session_id": session, "url": url})
    for name in ("one.png", "two.png", "three.png"):
        shot = {"session_id": session, "filename": name}
        await agent.call_tool("browser_take_screenshot", shot)
    options = {"timezone_id": "Asia/Kolkata"}
    async with console(browser, console_address(server.data), width=800, **options) as page:
        await show(page, session)
        await page.locator(".timeline .gap", has_text="UTC+5:30, Asia/").wait_for()
        await page.locator(".steps summary").focus()
        await page.keyboard.press("Enter")
        await page.get_by_text("3 of 3").wait_for()
        await page.get_by_role("slider", name="Picture").focus()
        await page.keyboard.press("Home")
        await page.get_by_text("1 of 3").wait_for()
        await page.keyboard.press("ArrowRight")
        await page.get_by_text("Take a screenshot two.png").last.wait_for()
        again = {"session_id": session, "filename": "two.png"}
        await agent.call_tool("browser_take_screenshot", again)
        # The first file of this name is overwritten.
        await page.get_by_text("3 of 3").wait_for()
