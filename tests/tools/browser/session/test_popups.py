"""Tabs, closing, sizes and media."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from changing import Changing
from lab import Lab
from playwright.async_api import Page
from support.browsing import Browse, opened, running, section, until_pages_closed
from support.waiting import until

from statehold.sessions.errors import InvalidArgument
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session import tab_list as tabs_of_sessions

pytestmark = pytest.mark.peer


async def test_tabs_are_opened_listed_selected_and_closed(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame?name=one")
    text = await browse.text("tabs", action="new", url=f"{lab}/frame?name=two")
    assert "A new tab opened" not in text
    assert section(text, "Open tabs").splitlines() == [
        f"- 0: [Frame one - Lab]({lab}/frame?name=one)",
        f"- 1: (current) [Frame two - Lab]({lab}/frame?name=two)",
    ]
    assert "Frame two" in section(text, "Snapshot")
    await browse.text("tabs", action="select", index=0)
    assert "Frame one" in section(await browse.text("snapshot"), "Snapshot")
    text = await browse.text("tabs", action="close", index=1)
    assert section(text, "Result") == f"- 0: (current) [Frame one - Lab]({lab}/frame?name=one)"
    assert "No open tabs" in await browse.text("tabs", action="close")


async def test_a_missing_tab_is_an_error(browse: Browse) -> None:
    await browse.text("tabs", action="list")
    assert "There is no tab 7" in await browse.error("tabs", action="select", index=7)
    assert "There is no tab -1" in await browse.error("tabs", action="close", index=-1)
    assert "Give the index" in await browse.error("tabs", action="select")
    with pytest.raises(InvalidArgument):
        await browse.call("tabs", action="nonsense")


async def test_a_popup_is_a_tab_beside_the_current_one(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/popup")
    text = await browse.text("click", target="text=Open popup")
    assert "- 1: [Frame popup - Lab]" in section(text, "Open tabs")
    assert "A new tab opened (1)." in section(text, "Events")
    assert f"- Page URL: {lab}/popup\n" in section(text, "Page") + "\n"


async def test_a_popup_that_closed_again_is_reported_once(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/popup")
    session = browse.connection.session
    async with session.context.expect_page() as opening:
        await browse.value("() => { window.other = window.open('/frame?name=closing'); }")
    page = await opening.value
    async with page.expect_event("close"):
        await browse.value("() => { window.other.close(); }")
    text = await browse.text("snapshot")
    assert section(text, "Events") == "- A tab opened and closed again."


@pytest.mark.thorough
async def test_windows_that_open_and_close_within_a_call_are_reported(
    browse: Browse,
) -> None:
    with Changing() as site:
        site.pages |= {"/": "<p>hello", "/closing": "<script>window.close()</script>"}
        await browse.text("navigate", url=site.url)
        for function in (
            "() => { for (let n = 0; n < 2; n++) window.open('/').close() }",
            "() => { for (let n = 0; n < 2; n++) window.open('/closing') }",
        ):
            text = await browse.text("evaluate", function=function)
            assert section(text, "Events") == "- A tab opened and closed again. (2 times)"
        await browse.value("() => { localStorage.step = 2 }")
        await browse.text("navigate", url=site.at(2))
        # By a page that is not a tab.
        snapshot = await browse.saved()
        assert site.url in snapshot.data["origins"]
        assert "### Events" not in await browse.text("snapshot")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("html", "tool", "arguments"),
    [
        ("<button onmousedown='window.close()'>Bye", "click", {"target": "text=Bye"}),
        ("<body onkeydown='window.close()'>Bye", "press_key", {"key": "Enter"}),
        (
            "<input onkeydown='window.close()'>",
            "type",
            {"text": "x", "target": "input", "submit": True},
        ),
    ],
)
async def test_an_action_that_closes_its_window_is_done(
    browse: Browse, html: str, tool: str, arguments: dict[str, Any]
) -> None:
    with Changing() as site:
        site.pages |= {"/": "<button onclick='window.open(`/closing`)'>Open", "/closing": html}
        await browse.text("navigate", url=site.url)
        # Whether Playwright's action ends before the window does, is a matter of chance.
        for _ in range(3):
            await browse.text("click", target="text=Open")
            await browse.text("tabs", action="select", index=1)
            text = await browse.text(tool, **arguments)
            assert "The current tab closed; another one is current now." in text
            assert f"- Page URL: {site.url}" in text


@pytest.mark.thorough
async def test_a_slow_window_is_reported_with_the_action_that_opened_it(
    tmp_path_factory: pytest.TempPathFactory, shell: str, lab: str
) -> None:
    data = tmp_path_factory.mktemp("data")
    # Every new page gets it before anything is heard of the page.
    (data / "init.js").write_text(f"/*{'x' * 8_000_000}*/", encoding="utf-8")
    async with (
        running(data, shell, init_script=str(data / "init.js")) as service,
        opened(service) as browse,
    ):
        await browse.text("navigate", url=f"{lab}/popup")
        for number, url in enumerate(("about:blank", "/frame?name=blank"), 1):
            script = f"() => {{ setTimeout(() => window.open('{url}'), 0) }}"
            text = await browse.text("evaluate", function=script)
            assert f"A new tab opened ({number})." in section(text, "Events")


@pytest.mark.thorough
async def test_a_window_that_closes_at_once_is_not_waited_for(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs_of_sessions, "EXPECT_SECONDS", 3600)
    await browse.text("navigate", url=f"{lab}/popup")
    # Past the tools, which wait themselves.
    await browse.value("() => { for (let n = 0; n < 3; n++) window.open('about:blank').close() }")
    with anyio.fail_after(30):
        await browse.connection.session.tabs.wait_for_windows(seconds=3600)
    text = await browse.text("click", target="text=Open popup")
    assert "[Frame popup - Lab]" in section(text, "Open tabs")


@pytest.mark.thorough
async def test_a_window_that_never_becomes_a_page_is_not_waited_for(browse: Browse) -> None:
    await browse.text("navigate", url="about:blank")
    tabs = browse.connection.session.tabs
    tabs.expect_window("one that Playwright never tells of")
    with anyio.fail_after(30):
        await tabs.wait_for_windows(seconds=3600)
        await browse.text("evaluate", function="() => { window.open('data:text/html,nothing') }")


@pytest.mark.thorough
async def test_a_window_that_opens_together_with_a_tab_is_reported(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs_of_sessions, "EXPECT_SECONDS", 3600)
    await browse.text("navigate", url="about:blank")
    tabs = browse.connection.session.tabs

    async def opening() -> Page:
        await browse.value("() => { window.open('about:blank') }")
        await until(lambda: len(tabs) == 2)
        return await tabs.context.new_page()

    await tabs._await_own_page(opening())  # pyright: ignore[reportPrivateUsage]
    assert tabs.event_lines == ["A new tab opened (1)."]
    with anyio.fail_after(30):
        await tabs.wait_for_windows(seconds=3600)


@pytest.mark.thorough
async def test_a_new_tab_is_reported_when_its_server_answers(
    service: BrowserService, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = service.config.model_copy(update={"settle_seconds": 0.2})
    monkeypatch.setattr(service, "config", config)
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab_site.url}/popup")
        script = "() => { window.open('/frame?name=late&gate=late', '_blank', 'noopener') }"
        text = await browse.text("evaluate", function=script)
        assert "A new tab" not in text
        lab_site.open("late")
        context = browse.connection.session.context
        await until(lambda: len(context.pages) == 2)
        assert "A new tab opened (1)." in await browse.text("snapshot")


async def test_closing_keeps_the_session_and_the_next_call_says_that_its_page_is_new(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/logins")
    await browse.text("click", target="text=By cookie")
    assert "No open tabs" in section(await browse.text("close"), "Result")
    text = await browse.text("snapshot")
    assert "All pages were closed; this is a new, empty one." in section(text, "Events")
    assert "Page URL: about:blank" in text
    assert "All pages" not in await browse.text("navigate", url=f"{lab}/logins")
    assert "ada" in await browse.text("wait_for", text="ada")


async def test_the_page_has_the_size_and_the_media_that_were_asked_for(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/media")
    await browse.text("resize", width=800, height=500)
    await browse.text("emulate_media", colorScheme="dark", reducedMotion="reduce")
    await browse.text("emulate_media", media="print")
    said = "() => document.getElementById('said').textContent"
    assert await browse.value("() => [innerWidth, innerHeight]") == [800, 500]
    assert await browse.value("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert await browse.value("() => matchMedia('print').matches")
    text = await browse.text("emulate_media", colorScheme=None)
    assert "emulate_media(color_scheme='null')" in text
    assert not await browse.value("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert await browse.value("() => matchMedia('(prefers-reduced-motion: reduce)').matches")
    assert "800x500" in await browse.value(said)


async def test_sizes_and_media_that_cannot_be_are_refused(browse: Browse) -> None:
    for arguments in ({"width": -1, "height": 5}, {"width": 10, "height": 10**9}, {"width": 10}):
        with pytest.raises(InvalidArgument):
            await browse.call("resize", **arguments)
    with pytest.raises(InvalidArgument):
        await browse.call("emulate_media", colorScheme="pink")
    assert "at least one" in await browse.error("emulate_media")


@pytest.mark.thorough
async def test_a_cancelled_call_leaves_no_tab_behind(service: BrowserService, lab: str) -> None:
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/frame?name=one")
        await browse.text("tabs", action="new", url=f"{lab}/frame?name=two")
        snapshot = await browse.saved()
    async with opened(service, browse.next_view(), snapshot) as resumed:
        session = resumed.connection.session
        ways: list[dict[str, Any]] = [{"action": "select", "index": 0}, {"action": "new"}]
        for turns in range(1, 40, 3):
            for arguments in ways:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(resumed.call, "tabs", **arguments))
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
        # By the time this call is answered, all earlier commands to the browser have run.
        await (await session.context.new_page()).close()
        await until_pages_closed(session.context, 1)
        assert [tab.url for tab in session.tabs.entries] == [
            f"{lab}/frame?name={name}" for name in ("one", "two")
        ]
        assert "Events" not in await resumed.text("snapshot")
