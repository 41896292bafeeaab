"""Going places: a URL, back, and waiting for something to happen there."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import anyio
from pydantic import Field

from ..call import Call, ToolFailed, first_line
from ..policy import scheme_allowed
from ..tool import Arguments, BrowserTool, tool

LONGEST_WAIT = 30.0


class Navigate(Arguments):
    url: str


@tool("browser_navigate", title="Navigate to a URL", patience="navigation")
async def navigate(call: Call, given: Navigate) -> None:
    """Open a URL in the current tab and answer with the page's snapshot."""
    await go_to(call, given.url)


async def go_to(call: Call, wanted: str) -> None:
    """Open what the caller means by a URL in the current tab.

    Raises:
        ToolFailed: it may not be opened, or cannot be.
    """
    from playwright.async_api import Error, TimeoutError

    url = address(wanted)
    tab = await call.tab()
    patience = call.config.navigation_seconds * 1000

    async def go() -> None:
        try:
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=patience)
        except Error as error:
            if "Download is starting" in str(error):
                return
            if "interrupted by another navigation" not in str(error):
                raise
            # The error page of a navigation that was given up is still arriving.
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=patience)

    call.session.recorder.forget()
    try:
        await call.act(go)
    except Error as error:
        if isinstance(error, TimeoutError):
            # A page without end would take up more and more.
            await call.session.unstick(script="window.stop()")
        raise ToolFailed(f"{wanted[:2000]} could not be opened: {first_line(error)}") from None
    call.answer.code(f"await page.goto({url!r})")


def address(wanted: str) -> str:
    """Return a URL with the scheme that people leave out.

    Raises:
        ToolFailed: its scheme is none that may be opened.
    """
    url = wanted.strip()
    if not urlsplit(url).scheme or url.partition(":")[2][:1].isdigit():
        local = url.startswith(("localhost", "127."))
        url = f"{'http' if local else 'https'}://{url}"
    if not scheme_allowed(url):
        scheme = url.partition(":")[0]
        raise ToolFailed(f"{scheme}: URLs may not be opened; open an http:// or https:// one.")
    return url


class NavigateBack(Arguments):
    pass


@tool("browser_navigate_back", title="Go back", patience="navigation")
async def navigate_back(call: Call, given: NavigateBack) -> None:
    """Go back to the page before this one in the history of the tab."""
    tab = await call.tab()
    patience = call.config.navigation_seconds * 1000
    await call.act(lambda: tab.page.go_back(wait_until="domcontentloaded", timeout=patience))
    call.answer.code("await page.go_back()")


class WaitFor(Arguments):
    time: Annotated[
        float | None,
        Field(ge=0, description="Seconds, 30 at most; with a text, added to its bound"),
    ] = None
    text: Annotated[str | None, Field(description="Wait until this text is to be seen")] = None
    text_gone: Annotated[
        str | None, Field(alias="textGone", description="Wait until this text is gone")
    ] = None


@tool("browser_wait_for", title="Wait for", kind="read", patience="wait")
async def wait_for(call: Call, given: WaitFor) -> None:
    """Wait until a text appears or disappears, or for some seconds, and answer with the page's snapshot."""
    seconds = min(given.time or 0.0, LONGEST_WAIT)
    if given.text is None and given.text_gone is None:
        if given.time is None:
            raise ToolFailed("Say what to wait for: a text, a textGone or a time.")
        call.expected_seconds = seconds
        await call.act(lambda: anyio.sleep(seconds))
        call.answer.code(f"await page.wait_for_timeout({seconds * 1000:g})")
        call.answer.result(f"Waited for {seconds:g} seconds")
        return
    if given.text_gone is not None:
        await _wait(call, given.text_gone, seconds, gone=True)
        seconds = 0.0
    if given.text is not None:
        await _wait(call, given.text, seconds, gone=False)


async def _wait(call: Call, text: str, seconds: float, *, gone: bool) -> None:
    from playwright.async_api import Error

    tab = await call.tab()
    found = tab.page.get_by_text(text).first
    bound = call.timeout + seconds * 1000
    state = "hidden" if gone else "visible"
    try:
        await call.act(lambda: found.wait_for(state=state, timeout=bound))
    except Error as error:
        call.shows_snapshot = True
        if "Timeout" not in str(error):
            raise
        still = "is still on the page" if gone else "is not on the page"
        raise ToolFailed(
            f"{text!r} {still} after {bound / 1000:g} seconds; give a time to wait longer."
        ) from None
    call.answer.code(f"await page.get_by_text({text!r}).first.wait_for(state={state!r})")
    if tab.modal_text is None:
        call.answer.result(f"Waited for {text}")


TOOLS: list[BrowserTool] = [navigate, navigate_back, wait_for]
