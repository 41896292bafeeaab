"""The list of sessions in the console: its filters in the address, its order, and the choice of several sessions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab
from mcp import Client
from playwright.async_api import Browser, Locator, Page, Route, expect
from support.console_client import console_address
from support.console_page import console
from support.gateway_process import Running, Way, opened_session, service, serving, toml
from support.waiting import until


def rows_of(page: Page) -> Locator:
    return page.get_by_role("table", name="Sessions without an open page").locator("tbody tr")


async def names_of(page: Page) -> list[str]:
    return await rows_of(page).get_by_role("link").all_inner_texts()


async def until_names(page: Page, fits: Callable[[list[str]], bool]) -> None:
    async def do_fit() -> bool:
        return fits(await names_of(page))

    await until(do_fit)


async def choose(page: Page, *names: str) -> None:
    for name in names:
        await page.get_by_role("checkbox", name=f"Choose {name}", exact=True).check()


@pytest.mark.thorough
async def test_filters_stay_in_the_address_and_chosen_sessions_are_closed_with_one_answer(
    agent: Client, page: Page, lab_site: Lab
) -> None:
    names = [f"many {number}" for number in range(4)]
    for name in names:
        await opened_session(agent, name=name)
    opened = await opened_session(agent, name="many with a page")
    url = f"{lab_site.url}/counter"
    await agent.call_tool("browser_navigate", {"session_id": opened, "url": url})
    await page.get_by_role("searchbox", name="Search").fill("many")
    heading = page.get_by_role("button", name="Session", exact=True)
    await heading.click()
    await heading.click()
    await until_names(page, lambda found: found == names[::-1])
    await page.locator("a.tile", has_text="many with a page").wait_for()
    await page.reload()
    await until_names(page, lambda found: found == names[::-1])
    assert await page.get_by_role("searchbox", name="Search").input_value() == "many"
    await rows_of(page).first.get_by_role("link").click()
    await page.get_by_role("heading", name="many 3").wait_for()
    await page.get_by_role("link", name="All sessions").click()
    await until_names(page, lambda found: found == names[::-1])

    await choose(page, "many 0", "many 2", "many with a page")
    await page.get_by_role("button", name="Close …").click()
    dialog = page.get_by_role("dialog")
    assert await dialog.get_by_role("listitem").all_inner_texts() == [
        "many 0",
        "many 2",
        "many with a page",
    ]
    await dialog.get_by_role("button", name="Close them").click()
    await until_names(page, lambda found: found == ["many 3", "many 1"])
    assert await page.get_by_role("region", name="Chosen sessions").count() == 0


@pytest.mark.thorough
async def test_chosen_sessions_are_paused_over_pages_of_the_list_by_keyboard(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="paged 000", services=["quick"])
    names = [f"paged {number:03}" for number in range(1, 70)]
    await agent.call_tool("session_fork", {"session_id": session, "count": 69, "names": names})
    await page.goto(f"{page.url.partition('#')[0]}#/?query=paged&sort=name")
    await until_names(page, lambda found: found[:1] == ["paged 000"] and len(found) == 60)
    await page.get_by_role("checkbox", name="Choose paged 000").focus()
    await page.keyboard.press("Space")
    await page.get_by_role("button", name="All 60 on this page").press("Enter")
    await page.get_by_role("button", name="Next").press("Enter")
    await until_names(page, lambda found: found[:1] == ["paged 060"])
    await choose(page, "paged 069")
    await page.get_by_text("61 chosen").wait_for()
    await page.get_by_role("button", name="Pause …").press("Enter")
    await page.get_by_role("button", name="Pause them").press("Enter")
    await page.get_by_role("dialog").wait_for(state="hidden")
    await page.get_by_role("combobox", name="Status").select_option("paused")
    await until_names(page, lambda found: len(found) == 60)
    await page.get_by_role("button", name="Next").click()
    await until_names(page, lambda found: found == ["paged 069"])


@pytest.mark.thorough
async def test_what_could_not_be_done_is_named_and_stays_chosen(agent: Client, page: Page) -> None:
    for name in ("first", "second"):
        await opened_session(agent, name=f"stubborn {name}", services=["quick"])
    await page.get_by_role("searchbox", name="Search").fill("stubborn")
    await until_names(page, lambda found: len(found) == 2)
    await choose(page, "stubborn first", "stubborn second")
    await page.get_by_role("button", name="Close …").click()
    pattern = re.compile(r"/actions/close$")
    sent: list[str] = []

    async def refuse_first(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) == 1:
            body = '{"code": "session_busy", "message": "It is busy.", "recovery": "Wait."}'
            await route.fulfill(status=409, body=body)
        else:
            await route.continue_()

    await page.route(pattern, refuse_first)
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Close them").click()
    await dialog.get_by_text("It is busy. Wait.").wait_for()
    assert await dialog.get_by_role("listitem").count() == 1
    await dialog.get_by_role("button", name="Try again").click()
    await page.get_by_text("No session fits.").wait_for()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", ["sort=-nothing", "status=%3Cb%3E", "sort=toString", "other=1&query="]
)
async def test_an_address_with_other_words_shows_the_whole_list(
    agent: Client, page: Page, words: str
) -> None:
    await opened_session(agent, services=["quick"])
    await page.goto(f"{page.url.partition('#')[0]}#/?{words}")
    await rows_of(page).first.wait_for()
    assert await page.get_by_role("combobox", name="Order").input_value() == "used"
    assert await page.get_by_role("alert").count() == 0


@pytest.mark.thorough
async def test_a_session_that_asks_without_a_page_is_first_and_becomes_a_tile_with_its_page(
    server: Running, agent: Client, browser: Browser, lab_site: Lab
) -> None:
    session = await opened_session(agent, name="asking early")
    await opened_session(agent, name="asking later")
    ask = {"session_id": session, "reason": "A <b>code</b>", "wait_seconds": 0}
    await agent.call_tool("session_request_human", ask)
    async with console(browser, console_address(server.data), width=390) as phone:
        asks = phone.get_by_role("table", name="Sessions that ask for a person")
        await asks.get_by_text("A <b>code</b>").wait_for()
        assert await asks.locator("tbody tr").count() == 1
        url = f"{lab_site.url}/counter"
        await agent.call_tool("browser_navigate", {"session_id": session, "url": url})
        await phone.locator("a.tile", has_text="asking early").wait_for()
        assert await asks.count() == 0


@pytest.mark.thorough
async def test_a_fork_gets_the_next_free_names_that_a_person_may_change(
    agent: Client, page: Page
) -> None:
    session = await opened_session(agent, name="flow", services=["quick"])
    await opened_session(agent, name="flow-3", services=["quick"])
    await page.goto(f"{page.url.partition('#')[0]}#/s/{session}")
    fork = page.get_by_role("button", name=re.compile("^Fork …"))
    await page.locator("summary.button", has_text="More").click()
    await fork.click()
    names = page.get_by_label("Names")
    await expect(names).to_have_value("flow-2")
    await page.get_by_label("Children").fill("3")
    await expect(names).to_have_value("flow-2, flow-4, flow-5")
    await names.fill("mine")
    await page.get_by_label("Children").fill("1")
    await expect(names).to_have_value("mine")
    await names.fill("flow-2")
    await page.get_by_role("button", name="Fork", exact=True).click()
    await page.get_by_role("status").get_by_role("link", name="flow-2").click()
    await page.get_by_role("heading", name="flow-2").wait_for()
    await page.locator("summary.button", has_text="More").click()
    await fork.click()
    await expect(names).to_have_value("flow-4")


@pytest.mark.thorough
async def test_the_jump_finds_letters_of_names_and_words_of_purposes_and_no_letters_of_ids(
    agent: Client, page: Page
) -> None:
    metadata = {"purpose": "The zebra of this test"}
    session = await opened_session(agent, name="quarterly", services=["quick"], metadata=metadata)
    await opened_session(agent, services=["quick"])
    await rows_of(page).get_by_role("link", name="quarterly").wait_for()
    await page.get_by_role("button", name="Jump to a session").click()
    field = page.get_by_role("combobox", name="Name, purpose or id")
    options = page.get_by_role("listbox", name="Sessions").get_by_role("option")
    for letters in ("qrtl", "Zebra of", session[:12], session[3:9]):
        await field.fill(letters)
        await expect(options).to_have_count(1)
        await expect(options).to_contain_text("quarterly")
    # Letters of an id in their order are chance.
    for letters in ("zx", f"{session[4]}{session[-1]}q"):
        await field.fill(letters)
        await page.get_by_text("No session has these letters.").wait_for()


@pytest.mark.thorough
async def test_a_link_says_whether_another_machine_opens_it(
    agent: Client, page: Page, tmp_path: Path, browser: Browser
) -> None:
    session = await opened_session(agent, services=["quick"])
    await page.goto(f"{page.url.partition('#')[0]}#/s/{session}")
    await page.get_by_role("button", name="Share").click()
    await page.get_by_text("is this machine only").wait_for()
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    server = {"public_url": "https://mcp.example.org"}
    config.write_text(toml({"services": {"quick": service("asking")}, "server": server}))
    with serving(config, data) as public:
        way = Way("http", "modern", config, data, url=public.url)
        async with way.connect() as client:
            session = await opened_session(client)
            async with console(browser, console_address(data, public.url)) as other:
                await other.goto(f"{other.url.partition('#')[0]}#/s/{session}")
                await other.get_by_role("button", name="Share").click()
                await other.get_by_role("button", name="Make a link").click()
                link = other.get_by_label("The link, shown this once")
                await expect(link).to_have_value(re.compile(r"^https://mcp\.example\.org/console#"))
                assert await other.get_by_text("is this machine only").count() == 0
