"""The states of the page of the console, each reached as a person would reach it."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from .agent import Agent

SHOP = """
document.head.innerHTML = "<style>body{margin:0;font:16px sans-serif;background:#f4f1ea}header,button{background:#274c3a;" +
  "color:#fff}header{padding:18px 40px}main{padding:24px 40px}h1{font-weight:500}input,button{font:inherit;padding:9px;" +
  "border:1px solid #999}label{display:block;margin:0 0 20px}</style>";
document.title = "Checkout";
document.body.innerHTML = "<header><b>Paper &amp; Ink</b></header><main><h1>Check out</h1>" +
  "<p>2 notebooks, 1 fountain pen</p>" +
  "<label>E-mail<br><input size=32 value='ada@example.org'></label>" +
  "<label>Code from your phone<br><input size=12></label><button>Pay 42.50 €</button>" +
  "<div style='position:absolute;left:700px;top:120px'><select style='width:240px;height:40px;margin-bottom:20px'>" +
  "<option>Norway<option selected>Greece<option>日本</select><br>" +
  "<input type=date value=2031-05-06 style='width:240px;height:40px;box-sizing:border-box;margin-bottom:20px'><br>" +
  "<button type=button style='width:240px;height:40px' onclick='alert(`Your cart is kept for ten minutes.`)'>Cart</button>" +
  "</div></main>";
""".replace("\n", "")

PLACES = {"list": (820, 140), "date": (820, 200), "dialog": (820, 260)}
"""Places of fields, and of a button, on that page."""


IMAGES: Final = os.environ.get("CONSOLE_IMAGES")
"""The folder that gets the pictures for the documentation."""
PICTURES: Final = frozenset(
    {
        "overview-light-1440",
        "session-asked-light-390",
        "session-control-light-1440",
        "session-pictures-light-1440",
        "session-share-light-1440",
        "operator-light-1440",
    }
)
"""The pictures of the console in the documentation: state, colours, pixels of the width."""


async def take_picture(page: Page, state: str) -> None:
    """Write the picture of a state, in the colours and the size of the page, if the documentation has it."""
    scheme = await page.evaluate(
        "matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'"
    )
    name = f"{state}-{scheme}-{await page.evaluate('innerWidth')}"
    if IMAGES is not None and name in PICTURES:
        await page.evaluate("scrollTo(0, 0)")
        await page.screenshot(path=Path(IMAGES) / f"{name}.png", animations="disabled")


async def states(
    page: Page, address: str, shop: Agent, notes: Agent, fresh: Agent
) -> AsyncGenerator[str]:
    """Bring a page into one state after the other, and name each.

    `address` logs it in, `shop` has a browser, `notes` has none, and `fresh` one that is not open.
    """
    base = address.partition("#")[0]
    await page.goto(base)
    await page.get_by_text("logs you in").wait_for()
    yield "login"
    await page.goto("about:blank")
    await page.goto(address)
    await page.get_by_role("link", name="checkout").wait_for()
    await page.locator(".veil").first.wait_for(state="hidden")
    yield "overview"
    await page.get_by_role("checkbox", name="Choose notes").check()
    yield "overview-chosen"
    await page.get_by_role("button", name="Close …").click()
    await page.get_by_role("dialog").wait_for()
    yield "overview-close"
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="None").click()
    await page.get_by_role("searchbox", name="Search").fill("nothing like this")
    await page.get_by_text("No session fits.").wait_for()
    yield "overview-no-match"
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_role("link", name="checkout").wait_for()
    await page.keyboard.press("Escape")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("/")
    await page.get_by_role("combobox", name="Name, purpose or id").wait_for()
    yield "jump"
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="checkout").click()
    await page.get_by_role("button", name="Take over").wait_for()
    await page.locator("sh-timeline li").first.wait_for()
    await page.locator("sh-screen .veil").wait_for(state="hidden")
    yield "session"
    await page.get_by_text("Pictures of the steps").click()
    await page.get_by_alt_text("The page at").wait_for()
    yield "session-pictures"
    await page.get_by_text("Pictures of the steps").click()
    await page.get_by_role("searchbox", name="Search the timeline").fill("nothing like this")
    await page.get_by_text("No entry has these words").wait_for()
    yield "session-no-entry"
    await page.get_by_role("searchbox", name="Search the timeline").fill("")
    for title in ("State", "Log", "Files"):
        await page.get_by_role("tab", name=title).click()
        await page.get_by_text("Loading …").wait_for(state="hidden")
        yield f"session-{title.lower()}"
    await shop.call("session_request_human", reason="Type the code from your phone", wait_seconds=0)
    await page.get_by_text("The agent asks:").wait_for()
    yield "session-asked"
    guest_address = await _make_link(page)
    await page.get_by_role("button", name="Take over").click()
    await page.get_by_text("You have control.").wait_for()
    yield "session-control"
    browser = page.context.browser
    assert browser is not None
    other = await browser.new_page()
    await other.goto(guest_address)
    await page.get_by_text("1 other person watches this page").wait_for()
    yield "session-watched"
    await other.close()
    field = page.get_by_role("dialog", name="Field of the page")
    for name in ("list", "date"):
        await _click_at(page, *PLACES[name])
        await field.wait_for()
        yield f"session-{name}"
        # The first Escape may close a calendar alone.
        while await field.count():
            await page.keyboard.press("Escape")
    await _click_at(page, *PLACES["dialog"])
    await page.get_by_role("alertdialog").wait_for()
    yield "session-dialog"
    await page.get_by_role("button", name="OK").click()
    await page.get_by_role("alertdialog").wait_for(state="detached")
    await page.get_by_role("button", name="Reply …").click()
    yield "session-reply"
    await page.get_by_role("button", name="Done").click()
    await page.get_by_role("button", name="Take over").wait_for()
    # A later request is new only when the agent has read how this one ended.
    await shop.call("session_request_human", reason="Type the code from your phone", wait_seconds=0)
    await page.locator("sh-timeline summary").nth(1).click()
    yield "session-call"
    await page.get_by_role("button", name="Share …").click()
    await page.get_by_role("button", name="Make a link").click()
    await page.get_by_role("button", name="Copy").wait_for()
    yield "session-share"
    await page.get_by_role("button", name="Another link").click()
    yield "session-share-form"
    await page.get_by_label("only see the picture").check()
    await page.get_by_role("button", name="Make a link").click()
    embedded = await page.get_by_label("The link, shown").input_value()
    await page.keyboard.press("Escape")
    await page.get_by_text("More", exact=True).click()
    yield "session-menu"
    for title in ("Rename", "Fork", "Close"):
        if title != "Rename":
            await page.get_by_text("More", exact=True).click()
        await page.get_by_role("button", name=re.compile(f"^{title} …")).click()
        await page.get_by_role("dialog").wait_for()
        yield f"session-{title.lower()}"
        await page.get_by_role("button", name="Cancel").click()
    await page.goto(f"{base}#/s/{notes.session}")
    await page.get_by_role("heading", name="notes").wait_for()
    yield "session-no-picture"
    await page.get_by_role("tab", name="Forks").click()
    await page.get_by_text("Loading …").wait_for(state="hidden")
    yield "session-forks"
    await page.goto(f"{base}#/s/{fresh.session}")
    await page.get_by_text("No page is open.").wait_for()
    yield "session-no-page"
    await page.goto(f"{base}#/s/{'s_' + 'a' * 22}")
    await page.get_by_text("There is no such session").wait_for()
    yield "session-unknown"
    await page.goto(f"{base}#/services")
    await page.get_by_role("heading", name="Usage").wait_for()
    yield "services"
    await page.goto(f"{base}#/logins")
    await page.get_by_text("none is stored").wait_for()
    await page.get_by_role("button", name="Add a key").click()
    yield "logins-key"
    await page.get_by_role("button", name="Cancel").click()
    await page.goto(f"{base}#/s/{shop.session}")
    await page.get_by_role("button", name="Take over").wait_for()
    await page.context.set_offline(True)
    await page.get_by_text("What you see may be old.").wait_for()
    yield "session-lost"
    await page.context.set_offline(False)
    await page.goto("about:blank")
    await page.goto(embedded)
    await page.get_by_role("listitem").wait_for()
    await page.locator(".veil").wait_for(state="hidden")
    yield "embed"
    await page.reload()
    await page.get_by_role("alert").wait_for()
    yield "embed-ended"
    await page.goto(f"{base}#/s/{shop.session}")
    guest_address = await _make_link(page)
    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(guest_address)
    await page.get_by_text("View only").wait_for()
    await page.locator("sh-screen .veil").wait_for(state="hidden")
    yield "session-guest"


async def _make_link(page: Page) -> str:
    """Return a new link to the session of a page, to view."""
    await page.get_by_role("button", name="Share …").click()
    await page.get_by_role("button", name="Make a link").click()
    address = await page.get_by_label("The link, shown").input_value()
    await page.keyboard.press("Escape")
    return address


async def _click_at(page: Page, x: float, y: float) -> None:
    """Click on a place of the page that a picture shows."""
    picture = page.locator("sh-screen canvas")
    box = await picture.bounding_box()
    assert box is not None
    scale = min(box["width"] / 1280, box["height"] / 720)
    left, top = (box["width"] - 1280 * scale) / 2, (box["height"] - 720 * scale) / 2
    await picture.click(position={"x": left + x * scale, "y": top + y * scale})


async def fill(shop: Agent, notes: Agent, site: str) -> None:
    """Let two agents work, so that the pages have something to show."""
    await shop.said("browser_navigate", url=site)
    await shop.evaluate(f"{{ {SHOP} }}")
    await shop.call("browser_take_screenshot")
    await shop.call("browser_click", target="e9999")
    await shop.said("state_update", values={"cart": {"notebooks": 2, "pen": 1}})
    await notes.said("state_update", values={"chapter": 3})
    await notes.call("state_get", path="/nothing", required=True)


__all__ = ["fill", "states"]
