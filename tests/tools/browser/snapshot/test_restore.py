"""How a saved browser context comes back, with a real browser and real sites."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from keeping import Keeping
from playwright.async_api import Browser, BrowserContext, Error, Page, Route
from support.saved_contexts import (
    SECONDS,
    dormant_tab,
    log_in,
    logged_in,
    open_filled,
    page_of,
    resume,
    save,
)
from support.selection import matrix
from support.waiting import until

from statehold.sessions.services import Snapshot
from statehold.tools.browser.devtools.interception import RequestInterceptor
from statehold.tools.browser.snapshot import capture
from statehold.tools.browser.snapshot.model import ContextSnapshot, StoredOrigin
from statehold.tools.browser.snapshot.restore import RestoredContext, restore_context
from statehold.tools.browser.snapshot.saved_storage import OriginStorage


@pytest.mark.thorough
async def test_storage_and_history_state_are_there_before_the_scripts_of_the_page(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await open_filled(before, site.at(1) + "/everything")
        snapshot = await save(before, page)

    async with resume(browser, snapshot) as after:
        page = page_of(after)
        values = await page.evaluate("() => ({...found, state: String(found.state.at)})")
        assert values == {
            "state": "1,NaN",
            "session": "session",
            "local": "local",
            "type": "navigate",
        }
        events = await page.evaluate("events")
        assert {"input text", "change text", "change one", "input tick", "change tick"} <= set(
            events
        )
        assert "input untouched" not in events


async def test_each_kind_of_login_survives_in_every_tab(browser: Browser, site: Keeping) -> None:
    async with resume(browser) as before:
        pages = [await before.context.new_page() for _ in range(3)]
        for number, page in enumerate(pages, start=1):
            await log_in(before.context, page, site.at(number), f"user {number}")
        snapshot = await save(before, *pages, current=1)
    site.hits.clear()

    async with resume(browser, snapshot) as after:
        assert after.current == 1
        assert [hit for hit in site.hits if "account" in hit] == ["GET 127.0.0.2/account"]
        for number in (1, 2, 3):
            tab = after.tabs[number - 1]
            page = tab if isinstance(tab, Page) else await tab.open(seconds=SECONDS)
            name = f"user {number}"
            assert await logged_in(page) == {
                "local": name,
                "session": name,
                "cookie": f"login={name}",
                "database": name,
            }
        assert after.origins.dormant == set()
        assert after.origins.take_failures() == []


@pytest.mark.thorough
async def test_a_sleeping_tab_wakes_once_and_is_saved_as_it_was(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        current = await before.context.new_page()
        await current.goto(site.at(1) + "/plain")
        filled = await open_filled(before, site.at(2) + "/everything")
        snapshot = await save(before, current, filled)

    async with resume(browser, snapshot) as after:
        tab = dormant_tab(after, 1)
        assert (tab.url, tab.title) == (site.at(2) + "/everything", "Everything")
        again = await save(after, *after.tabs)
        assert again.tabs[1] == replace(snapshot.tabs[1], lost=[])
        assert again.origins == snapshot.origins
        woken: list[Page] = []

        async def wake() -> None:
            woken.append(await tab.open(seconds=SECONDS))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(wake)
        assert len(set(woken)) == 1
        assert tab.report.fields == 9
        assert await woken[0].input_value("#area") == "first\nsecond"


async def visit(restored: RestoredContext, how: str, frm: str, to: str) -> Page:
    context = restored.context
    page = await context.new_page()
    await page.goto(frm + "/plain")
    if how == "address":
        await page.goto(to)
    elif how == "redirect":
        await page.goto(frm + "/to?" + to)
    elif how == "script":
        await page.evaluate("to => { location.href = to }", to)
        await page.wait_for_url(to)
    else:
        target = to if how == "popup" else frm + "/to?" + to
        ours = restored.origins.watch.is_hidden
        async with context.expect_page(lambda page: not ours(page)) as opened:
            await page.evaluate("to => { window.open(to) }", target)
        page = await opened.value
        await page.wait_for_url(to)
    return page


@pytest.mark.thorough
@pytest.mark.parametrize("how", matrix("redirect", "redirected popup"))
async def test_a_site_without_a_tab_is_back_before_its_first_document_however_it_is_reached(
    browser: Browser, site: Keeping, how: str
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await log_in(before.context, page, site.at(2), "somebody")
        await page.goto(site.at(1) + "/plain")
        snapshot = await save(before, page)
    pages: list[Page] = []

    async with resume(browser, snapshot, pages=pages) as after:
        assert after.origins.dormant == {site.at(2)}
        assert site.hits[-1] == "GET 127.0.0.1/plain"
        page = await visit(after, how, site.at(1), site.at(2) + "/account")
        login = await logged_in(page)
        assert (login["local"], login["database"]) == ("somebody", "somebody")
        assert after.origins.dormant == set()
        assert set(pages) == set(after.context.pages)
        # From now on changes are the site's own: cleared values are not restored again.
        await page.evaluate("localStorage.clear()")
        await page.reload()
        assert (await logged_in(page))["local"] is None
        assert (await save(after, page)).origins.get(site.at(2), StoredOrigin()).items == "[]"


@pytest.mark.thorough
async def test_two_sessions_of_one_browser_wake_only_their_own_sites(
    browser: Browser, site: Keeping
) -> None:
    snapshots: list[ContextSnapshot] = []
    for name in ("one", "two"):
        async with resume(browser) as before:
            page = await before.context.new_page()
            await log_in(before.context, page, site.at(2), name)
            await page.goto(site.at(1) + "/plain")
            snapshots.append(await save(before, page))

    async with resume(browser, snapshots[0]) as one, resume(browser, snapshots[1]) as two:
        page = await visit(one, "redirect", site.at(1), site.at(2) + "/account")
        assert (await logged_in(page))["local"] == "one"
        assert two.origins.dormant == {site.at(2)}
        page = await visit(two, "popup", site.at(1), site.at(2) + "/account")
        assert (await logged_in(page))["local"] == "two"
    async with resume(browser) as stranger:
        page = await visit(stranger, "address", site.at(1), site.at(2) + "/account")
        assert (await logged_in(page))["local"] is None
    await gone_from_the_interceptor(browser)


async def test_answers_to_forms_are_reported_and_not_sent_again(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/form")
        await page.click("button")
        await page.wait_for_url("**/answer")
        snapshot = await save(before, page)
        assert snapshot.tabs[0].posted
    site.hits.clear()

    async with resume(browser, snapshot) as after:
        assert "answer to a form" in after.report.lost
        assert not [hit for hit in site.hits if hit.startswith("POST")]


@pytest.mark.thorough
@pytest.mark.parametrize("silent", [False, True])
async def test_a_missing_page_is_the_same_page_again(
    browser: Browser, site: Keeping, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "PROBE_SECONDS", 0.5)
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/never")
        snapshot = await save(before, page)
        if silent:
            await page.evaluate("() => { setTimeout(() => { for (;;); }) }")
            snapshot = await save(before, page)
            assert "did not answer" in str(snapshot)
    async with resume(browser, snapshot) as after:
        assert await page_of(after).title() == "Not found"
        assert "answers" not in after.report.lost


async def test_pages_that_are_gone_are_reported(browser: Browser, site: Keeping) -> None:
    async with resume(browser) as before:
        pages = [await before.context.new_page() for _ in range(4)]
        await pages[0].goto(site.at(1) + "/framed?secret=1")
        await pages[1].goto("data:text/html,<title>data</title>")
        await pages[2].goto(site.at(1) + "/plain")
        snapshot = await save(before, *pages)
    assert "back and forward" not in str(snapshot)

    site.gone.add("/framed")
    async with resume(browser, snapshot) as after:
        assert f"{site.at(1)}/framed answers 404 now" in after.report.lost
        assert "secret" not in after.report.lost
        tab = dormant_tab(after, 1)
        await tab.open(seconds=SECONDS)
        assert "cannot be loaded again" in tab.report.lost[0]
        tab = dormant_tab(after, 3)
        assert (await tab.open(seconds=SECONDS)).url == "about:blank"
        assert tab.report.lost == []
        site.close()
        tab = dormant_tab(after, 2)
        await tab.open(seconds=SECONDS)
        assert "ERR_CONNECTION_REFUSED" in tab.report.lost[0]


async def test_cookies_come_back_with_their_flags_and_a_broken_one_costs_itself_only(
    browser: Browser, site: Keeping
) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await page.goto(site.at(1) + "/plain")
        await before.context.add_cookies(
            [
                {
                    "name": "s",
                    "value": "1",
                    "url": site.at(1),
                    "httpOnly": True,
                    "sameSite": "Strict",
                },
                {"name": "p", "value": "2", "url": site.at(2), "expires": 4_000_000_000},
            ]
        )
        snapshot = await save(before, page)
    snapshot.cookies.append({"name": "broken", "value": "", "domain": "", "path": "nowhere"})

    async with resume(browser, snapshot) as after:
        assert sorted(c.get("name", "") for c in await after.context.cookies()) == ["p", "s"]
        cookies = await after.context.cookies(site.at(1))
        assert (cookies[0].get("httpOnly"), cookies[0].get("sameSite")) == (True, "Strict")
        assert "2 cookies" in after.report.restored
        assert "1 cookie" in after.report.lost


async def test_a_cancelled_resume_leaves_no_context(browser: Browser, site: Keeping) -> None:
    open_before = len(browser.contexts)

    async def never(context: BrowserContext, origins: OriginStorage) -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.2):
        await restore_context(browser, None, context_options={}, prepare=never)
    assert len(browser.contexts) == open_before


@pytest.mark.parametrize(
    "snapshot",
    [Snapshot({"version": 99}), Snapshot(), Snapshot({"version": 1, "tabs": [{"x": 1}]})],
)
async def test_an_unreadable_snapshot_is_reported_and_restores_nothing(
    browser: Browser, snapshot: Snapshot
) -> None:
    state = ContextSnapshot.from_snapshot(snapshot)
    async with resume(browser, state) as after:
        assert after.context.pages == []
        assert after.report.restored == ""
        assert "everything" in after.report.lost


@pytest.mark.thorough
async def test_rules_of_the_session_about_requests_hold_and_do_not_hinder(
    browser: Browser, site: Keeping
) -> None:
    async def only_the_first(route: Route) -> None:
        await (route.continue_() if "127.0.0.1:" in route.request.url else route.abort())

    async def prepare(context: BrowserContext, origins: OriginStorage) -> None:
        await context.route("**/*", only_the_first)

    async with resume(browser) as before:
        page = await before.context.new_page()
        await log_in(before.context, page, site.at(2), "somebody")
        await page.goto(site.at(1) + "/plain")
        snapshot = await save(before, page)
    site.hits.clear()

    async with resume(browser, snapshot, prepare=prepare) as after:
        with pytest.raises(Error, match="ERR_FAILED"):
            await page_of(after).goto(site.at(2) + "/account")
        await after.origins.restore_origin(site.at(2))
        assert after.origins.dormant == set()
        assert (await save(after)).origins == snapshot.origins
    assert site.hits == ["GET 127.0.0.1/plain"]


@pytest.mark.thorough
async def test_a_frame_of_a_sleeping_site_waits_for_it(browser: Browser, site: Keeping) -> None:
    async with resume(browser) as before:
        page = await before.context.new_page()
        await log_in(before.context, page, site.at(2), "somebody")
        await page.goto(site.at(1) + "/plain")
        snapshot = await save(before, page)

    async with resume(browser, snapshot) as after:
        page = page_of(after)
        frame = "url => { document.body.append(Object.assign(document.createElement('iframe'), {src: url})) }"
        async with page.expect_event("framenavigated", lambda f: f.parent_frame is not None):
            await page.evaluate(frame, site.at(2) + "/plain")
        await until(lambda: not after.origins.dormant)


@pytest.mark.thorough
async def test_saving_and_resuming_again_and_again_leaves_nothing_behind(
    browser: Browser, site: Keeping, leaks: Any
) -> None:
    snapshot: ContextSnapshot | None = None
    open_before = len(browser.contexts)
    for _ in range(3):
        async with resume(browser, snapshot) as restored:
            if snapshot is None:
                page = await restored.context.new_page()
                await log_in(restored.context, page, site.at(2), "somebody")
                await log_in(restored.context, page, site.at(1), "somebody")
            async with anyio.create_task_group() as tasks:
                for light in (True, False, False):
                    tasks.start_soon(
                        partial(save, restored, page_of_or_first(restored), light=light)
                    )
            snapshot = await save(restored, page_of_or_first(restored))
            assert len(restored.context.pages) == 1
    assert sorted(snapshot.origins if snapshot else ()) == [site.at(1), site.at(2)]
    assert len(browser.contexts) == open_before
    await gone_from_the_interceptor(browser)
    await leaks.check()


async def gone_from_the_interceptor(browser: Browser, *, contexts: int = 0) -> None:
    nothing = f"<RequestInterceptor contexts={contexts} origins=0>"
    # The event of a closed context comes after close() has returned.
    await until(lambda: repr(RequestInterceptor.for_browser(browser)) == nothing)


def page_of_or_first(restored: RestoredContext) -> Page:
    return page_of(restored) if restored.tabs else restored.context.pages[0]
