"""Going places: a URL, and back."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..call import Call, ToolFailed, first_line
from ..tool import Arguments, BrowserTool, tool


class Navigate(Arguments):
    url: str


@tool("browser_navigate", title="Navigate to a URL", patience="navigation")
async def navigate(call: Call, given: Navigate) -> None:
    """Open a URL in the current tab and answer with the page's snapshot."""
    from playwright.async_api import Error

    tab = await call.tab()
    url = _address(given.url)

    async def go() -> None:
        try:
            await tab.page.goto(
                url,
                wait_until="domcontentloaded",
                timeout=call.config.navigation_seconds * 1000,
            )
        except Error as error:
            if "Download is starting" in str(error):
                return
            if "interrupted by another navigation" not in str(error):
                raise
            # The error page of a navigation that was given up is still arriving.
            await tab.page.goto(url, wait_until="domcontentloaded")

    try:
        await call.act(go)
    except Error as error:
        raise ToolFailed(f"{given.url} could not be opened: {first_line(error)}") from None
    call.answer.code(f"await page.goto({url!r})")


def _address(url: str) -> str:
    """Return a URL with the scheme that people leave out."""
    if urlsplit(url).scheme and not url.partition(":")[2][:1].isdigit():
        return url
    local = url.startswith(("localhost", "127."))
    return f"{'http' if local else 'https'}://{url}"


class NavigateBack(Arguments):
    pass


@tool("browser_navigate_back", title="Go back", patience="navigation")
async def navigate_back(call: Call, given: NavigateBack) -> None:
    """Go back to the page before this one in the history of the tab."""
    tab = await call.tab()
    await call.act(lambda: tab.page.go_back(wait_until="domcontentloaded"))
    call.answer.code("await page.go_back()")


TOOLS: list[BrowserTool] = [navigate, navigate_back]
