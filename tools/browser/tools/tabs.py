"""The tabs of a session, their viewport, and their emulated media features."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ...definition import NoArguments
from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..session.tab_list import Entry
from ..tool import BrowserArguments, BrowserTool, Whole, tool
from .navigation import go_to, parse_url

MAX_SIDE = 10_000
STAY_OPEN = "The tabs stay open: they belong to the browser's user. browser_tabs closes one."
NO_TABS = "No open tabs. The next call opens an empty one."


class TabsAction(BrowserArguments):
    action: Literal["list", "new", "close", "select"]
    index: Annotated[
        Whole | None,
        Field(description="The tab to close or select, by its number in the list"),
    ] = None
    url: Annotated[str | None, Field(description="The address that a new tab opens")] = None


@tool("browser_tabs", title="Manage tabs", limit="navigation")
async def tabs(call: BrowserCall, arguments: TabsAction) -> None:
    """List the tabs, open a new one, close one (the current one without an index), or select the one to work in."""
    tabs_of_session = call.session.tabs
    if arguments.action == "list":
        await call.session.current()
    elif arguments.action == "new":
        await _open_tab(call, arguments.url)
    elif arguments.action == "close":
        if tabs_of_session.current is not None or arguments.index is not None:
            await tabs_of_session.close(_tab_at(call, arguments.index))
    else:
        if arguments.index is None:
            raise BrowserToolFailed("Give the index of the tab to select.")
        await tabs_of_session.select(_tab_at(call, arguments.index))
    call.answer.result("\n".join(await call.session.tab_lines()) or NO_TABS)


async def _open_tab(call: BrowserCall, url: str | None) -> None:
    if url is not None:
        parse_url(url)
    if call.session.tabs.is_unused:
        # A browser starts with an empty tab; the new one is the second.
        await call.tab()
    try:
        await call.session.tabs.open()
    except IndexError as error:
        raise BrowserToolFailed(f"No new tab: {error}.") from None
    if url is not None:
        await go_to(call, url)


def _tab_at(call: BrowserCall, index: int | None) -> Entry:
    tabs_of_session = call.session.tabs
    if index is None and tabs_of_session.current is not None:
        return tabs_of_session.current
    if index is None or not 0 <= index < len(tabs_of_session):
        raise BrowserToolFailed(
            f"There is no tab {index}; there are {len(tabs_of_session)}, counted from 0."
        )
    return tabs_of_session[index]


@tool("browser_close", title="Close browser")
async def close(call: BrowserCall, arguments: NoArguments) -> None:
    """Close all tabs. The session stays, with its logins; the next call opens an empty tab."""
    if call.session.is_attached:
        call.answer.result(STAY_OPEN)
        return
    for tab in call.session.tabs.entries:
        await call.session.tabs.close(tab)
    call.session.tabs.take_events()
    call.answer.code("await page.close()")
    call.answer.result(NO_TABS)


Side = Annotated[Whole, Field(ge=1, le=MAX_SIDE)]


class Resize(BrowserArguments):
    width: Side
    height: Side


@tool("browser_resize", title="Resize browser window")
async def resize(call: BrowserCall, arguments: Resize) -> None:
    """Give the page a viewport of this size, in CSS pixels."""
    tab = await call.tab()
    size: Any = {"width": arguments.width, "height": arguments.height}
    await call.act(lambda: tab.page.set_viewport_size(size), snapshot=False, edits=False)
    call.answer.code(f"await page.set_viewport_size({size!r})")


def _null() -> None:
    """Return None, as a default factory: an absent field leaves the feature as it is, while null resets it."""


class EmulateMedia(BrowserArguments):
    color_scheme: Literal["light", "dark"] | None = Field(
        default_factory=_null, alias="colorScheme", description="prefers-color-scheme"
    )
    reduced_motion: Literal["reduce", "no-preference"] | None = Field(
        default_factory=_null, alias="reducedMotion", description="prefers-reduced-motion"
    )
    forced_colors: Literal["active", "none"] | None = Field(
        default_factory=_null, alias="forcedColors", description="forced-colors"
    )
    contrast: Literal["more", "no-preference"] | None = Field(
        default_factory=_null, description="prefers-contrast"
    )
    media: Literal["screen", "print"] | None = Field(
        default_factory=_null, description="As on a screen, or as it is printed"
    )


@tool("browser_emulate_media", title="Emulate media features")
async def emulate_media(call: BrowserCall, arguments: EmulateMedia) -> None:
    """Show the page as with this color scheme, motion, contrast or medium.

    A feature that is left out stays as it is; null ends its emulation.
    """
    names = [name for name in type(arguments).model_fields if name in arguments.model_fields_set]
    if not names:
        raise BrowserToolFailed("Name at least one media feature.")
    options: Any = {name: getattr(arguments, name) or "null" for name in names}
    tab = await call.tab()
    await call.act(lambda: tab.page.emulate_media(**options), snapshot=False, edits=False)
    features = call.session.watch.media.get(tab.page, {}) | options
    call.session.watch.media[tab.page] = {k: v for k, v in features.items() if v != "null"}
    if "media" in options:
        await call.session.watch.share_emulation(tab.page)
    code = ", ".join(f"{name}={value!r}" for name, value in options.items())
    call.answer.code(f"await page.emulate_media({code})")


TOOLS: list[BrowserTool] = [tabs, close, resize, emulate_media]
