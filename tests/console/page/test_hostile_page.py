"""Hostile texts of pages, agents and services on the page of the console: they are text, and break nothing."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser
from support.agent import Agent
from support.console_page import browser_of, opened_console, page_of
from support.waiting import until

from statehold.console.app import Console
from statehold.server.gateway.gateway import Gateway

SCRIPT = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
OVERRIDE = "\u202egnp.exe \u2066\u2067"
LONG = "W" * 10_000
TEXTS = {"script": SCRIPT, "override": OVERRIDE, "long": LONG}


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1440, 390])
async def test_hostile_texts_stay_text_and_inside_their_place(
    browser: Browser, url: str, console: Console, ada: Agent, gateway: Gateway, width: int
) -> None:
    await ada.said("browser_navigate", url="data:text/html,<body bgcolor=red>")
    for name, text in TEXTS.items():
        await ada.said("session_rename", metadata={"purpose": text[:1000]})
        await ada.said(
            "browser_evaluate", function=f"() => {{ document.title = {text!r}; return {text!r} }}"
        )
        await ada.said("session_note", role="user", content=text)
        # A tool that fails puts the text into an error.
        await ada.call("browser_click", target=text[:500])
        await ada.call("session_request_human", reason=text[:400], wait_seconds=0)
        viewport = {"width": width, "height": 900}
        async with opened_console(browser, url, console, viewport=viewport) as window:
            page = window.page
            await page.locator("sh-overview .tile").wait_for()
            for place in ("#/", f"#/s/{ada.session}"):
                await page.evaluate("place => { location.hash = place; }", place)
                await page.locator("sh-screen canvas" if "/s/" in place else ".tile").wait_for()
                assert await page.title() == "(1) shop asks - Statehold"
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, (
                    name,
                    place,
                )
            await page.locator(".timeline summary").nth(1).click()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert await page.locator("img[src=x], main script").count() == 0
            assert await page.title() == "(1) shop asks - Statehold"
            assert window.errors == []


@pytest.mark.thorough
async def test_a_hostile_dialog_and_address_are_text(
    browser: Browser, url: str, console: Console, ada: Agent, gateway: Gateway
) -> None:
    async with opened_console(browser, url, console, ada.session) as window:
        await window.take()
        watched = page_of(gateway, ada.session)
        await watched.goto(f"data:text/html,{SCRIPT}{'a' * 5000}")
        await watched.evaluate(
            "history.replaceState(0, '', location.href + '#javascript:alert(1)')"
        )
        await window.page.locator(".tab.current button[title^='data:text/html']").wait_for()
        assert len(await window.page.get_by_label("Address").input_value()) <= 2000
        for text in TEXTS.values():
            await watched.evaluate("text => void setTimeout(() => confirm(text))", text)
            dialog = window.page.get_by_role("alertdialog")
            await dialog.wait_for()
            assert await window.page.evaluate("document.documentElement.scrollWidth") <= 1440
            # Its buttons are in reach, however long the text is.
            await dialog.get_by_role("button", name="Cancel").click()
            await dialog.wait_for(state="detached")
        assert await window.page.locator("img[src=x]").count() == 0
        assert await window.page.title() == "Statehold"
        await window.page.get_by_label("Address").fill("javascript:document.title=1")
        await window.page.get_by_label("Address").press("Enter")
        await window.page.locator(".screen .notice", has_text="javascript: URLs").wait_for()
        assert await window.page.title() == "Statehold"
        await window.give_back()
        assert window.errors == []
    await until(
        lambda: repr(browser_of(gateway, ada.session).screencast) == "<Screencast captures=0>"
    )
