"""Navigation: opening a URL, going back, and waiting for a text."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import anyio
from pydantic import Field

from ....sessions.json_codec import JSON
from ...definition import NoArguments
from ..call import Call
from ..egress.policy import scheme_allowed
from ..session.early_snapshot import prepare
from ..session.failures import ToolFailed, in_words
from ..session.frames import shown_as
from ..session.tab import Tab
from ..tool import BrowserArguments, BrowserTool, tool

if TYPE_CHECKING:
    from playwright.async_api import Error, Frame, Page

LONGEST_WAIT = 30.0
HANGS_SECONDS: Final = 5.0
"""Seconds after which a page that was not replaced by a navigation is closed if it does not answer."""
ARRIVE_SECONDS: Final = 0.5


class Navigate(BrowserArguments):
    url: Annotated[str, Field(description="https:// when it is left out, http:// for this machine")]


@tool("browser_navigate", title="Navigate to a URL", limit="navigation")
async def navigate(call: Call, given: Navigate) -> None:
    """Open a URL in the current tab and answer with the page's snapshot."""
    await go_to(call, given.url)


async def go_to(call: Call, wanted: str) -> None:
    """Open the address that the caller wrote in the current tab.

    Raises:
        ToolFailed: It may not be opened, or cannot be.
    """
    from playwright.async_api import Error, TimeoutError

    url = address(wanted)
    if password := urlsplit(url).password:
        call.session.typed_secrets.add(password)
    patience = call.config.navigation_seconds * 1000

    async def go() -> None:
        tab = await call.tab()
        try:
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=patience)
        except Error as error:
            if "Download is starting" in str(error):
                return
            if "interrupted by another navigation" not in str(error):
                raise
            # The error page of an aborted navigation is still loading: try once more.
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=patience)

    with _opening(call, wanted):
        try:
            if not await _left(call, go):
                await call.act(go, edits=False, at_once=True)
        except TimeoutError:
            await _stopped(call)
            raise
    call.answer.code(f"await page.goto({url!r})")


@contextmanager
def _opening(call: Call, wanted: str) -> Generator[None]:
    """Raise ToolFailed if the page that the block opens fails, or if our proxy answered in place of its site."""
    from playwright.async_api import Error

    call.session.recorder.forget()
    call.session.unreached.clear()
    try:
        yield
        reason = _unreached(call)
    except Error as error:
        reason = _unreached(call) or in_words(error)
    if reason:
        raise ToolFailed(f"{wanted[:2000]} could not be opened: {reason}")


def _unreached(call: Call) -> str:
    tab = call.session.tabs.current
    request = None if tab is None else tab.asked_for
    if request is None:
        return ""
    response = request.existing_response
    if response is not None and response.status < 400:
        return ""
    return call.session.take_unreached(request.url)


async def _stopped(call: Call) -> None:
    """Stop all loading of the page: an endless response would take more and more memory."""
    tab = call.session.tabs.current
    if tab is not None:
        await _stop(call, tab)
    await call.session.unstick()


async def _stop(call: Call, tab: Tab) -> None:
    with suppress(Exception), anyio.move_on_after(ARRIVE_SECONDS):
        await (await call.session.watch.world(tab.page)).stop()
        while tab.waits_for:
            await tab.wait_changed()


async def _left(call: Call, go: Callable[[], Awaitable[None]]) -> bool:
    """Navigate by `go`. Return False if the old page hung, which blocks the navigation, and was closed."""
    from playwright.async_api import Error as Failed

    tab = await call.tab()
    page, came, answered = tab.page, anyio.Event(), anyio.Event()
    given_up = False

    def note(frame: Frame) -> None:
        if frame.parent_frame is None:
            came.set()

    async def ask() -> None:
        # Started before the navigation: while it is pending, the browser does not run scripts in the old page.
        with suppress(Exception):
            await (await call.session.watch.world(page)).ask("1")
            answered.set()

    async def watch() -> None:
        nonlocal given_up
        with anyio.move_on_after(HANGS_SECONDS):
            await came.wait()
        if not (came.is_set() or answered.is_set()):
            with anyio.CancelScope(shield=True):
                # The page has to be closed: during a navigation the browser cannot stop a script of the old page.
                await call.session.give_up(tab)
            given_up = page.is_closed()

    async def make_ready() -> None:
        await came.wait()
        await prepare(tab)

    failure: Error | ToolFailed | None = None
    page.on("framenavigated", note)
    try:
        async with anyio.create_task_group() as tasks:
            if not tab.waits_for:
                tasks.start_soon(ask)
                tasks.start_soon(watch)
            if call.config.snapshot != "none":
                # Prepare the snapshot while the rest of the page loads.
                tasks.start_soon(make_ready)
            try:
                await call.act(go, edits=False, at_once=True)
            except (Failed, ToolFailed) as error:
                # Raised below: the task group would wrap it.
                failure = error
                if "net::ERR_" in str(error) and "net::ERR_ABORTED" not in str(error):
                    # The browser's error page is still loading; a snapshot that begins before would take a second.
                    with anyio.move_on_after(ARRIVE_SECONDS):
                        await came.wait()
            tasks.cancel_scope.cancel()
    finally:
        page.remove_listener("framenavigated", note)
    if failure is not None and not page.is_closed():
        raise failure
    # The new page may have arrived while the old one was being closed, and was closed with it.
    return failure is None and not given_up


def address(wanted: str) -> str:
    """Return a URL, with a scheme added if it has none.

    Raises:
        ToolFailed: The text is no URL, or its scheme is not allowed.
    """
    url = wanted.strip()
    if not url:
        raise ToolFailed("The URL is empty.")
    try:
        if not urlsplit(url).scheme or url.partition(":")[2][:1].isdigit():
            local = url.startswith(("localhost", "127."))
            url = f"{'http' if local else 'https'}://{url}"
        host = _host(url)
    except ValueError as error:
        raise ToolFailed(f"{wanted.strip()[:2000]!r} is no URL: {error}.") from None
    if host is not None and (not host or re.search(r"\s", host)):
        raise ToolFailed(
            f"{wanted.strip()[:2000]!r} is no URL; write one such as https://example.com."
        )
    if not scheme_allowed(url):
        scheme = url.partition(":")[0]
        raise ToolFailed(f"{scheme}: URLs may not be opened; open an http:// or https:// one.")
    return url


def _host(url: str) -> str | None:
    """Return the host of an http or https URL, None for other schemes. Raises ValueError for an invalid URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    return "" if parts.port == 0 else parts.hostname or ""


@tool("browser_navigate_back", title="Go back", limit="navigation")
async def navigate_back(call: Call, given: NoArguments) -> None:
    """Go back to the page before this one in the history of the tab."""
    tab = await call.tab()
    past = await _past(call, tab)
    if past == []:
        raise ToolFailed("There is no earlier page in the history of this tab.")
    if past is not None and "id" not in past[-1]:
        await _load_back(call, tab, past[-1]["url"])
        return
    if tab.waits_for:
        # Stop a pending navigation first: its failure would be reported as that of going back.
        await _stop(call, tab)
    patience = call.config.navigation_seconds * 1000
    with _opening(call, past[-1]["url"] if past else "The page before"):
        await call.act(
            lambda: tab.page.go_back(wait_until="domcontentloaded", timeout=patience),
            edits=False,
            at_once=True,
        )
    call.answer.code("await page.go_back()")


async def _past(call: Call, tab: Tab) -> list[JSON] | None:
    """Return the history entries before the current page, or None if the browser does not report them."""
    from playwright.async_api import Error

    try:
        entries, index = await (await call.session.watch.world(tab.page)).history()
    except Error:
        # A browser at an endpoint may not support the query; going back works all the same.
        return None
    return entries[:index]


async def _load_back(call: Call, tab: Tab, wanted: str) -> None:
    url = address(wanted)
    world = await call.session.watch.world(tab.page)
    patience = call.config.navigation_seconds * 1000
    with _opening(call, url):
        await call.act(
            lambda: tab.load_back(world, url, milliseconds=patience), edits=False, at_once=True
        )
    call.answer.code(f"await page.goto({url!r})")
    if tab.modal_text is None:
        call.answer.result(
            "The page was loaded again from its address, which is all that was kept of it."
        )


class WaitFor(BrowserArguments):
    time: Annotated[
        float | None,
        Field(ge=0, description="Seconds, 30 at most; with a text, added to its bound"),
    ] = None
    text: Annotated[str | None, Field(description="Wait until this text is to be seen")] = None
    text_gone: Annotated[
        str | None, Field(alias="textGone", description="Wait until this text is gone")
    ] = None


@tool("browser_wait_for", title="Wait for", read_only=True, limit="wait")
async def wait_for(call: Call, given: WaitFor) -> None:
    """Wait until a text appears or disappears, or for some seconds, and answer with the page's snapshot."""
    seconds = min(given.time or 0.0, LONGEST_WAIT)
    if given.text is None and given.text_gone is None:
        if given.time is None:
            raise ToolFailed("Say what to wait for: a text, a textGone or a time.")
        call.expected_seconds = seconds
        began = anyio.current_time()
        await call.act(lambda: anyio.sleep(seconds), edits=False, at_once=True)
        # A dialog or file chooser ends the wait early.
        seconds = min(seconds, anyio.current_time() - began)
        call.answer.code(f"await page.wait_for_timeout({seconds * 1000:.4g})")
        call.answer.result(f"Waited for {seconds:.4g} seconds")
        return
    if given.text_gone is not None:
        if not await _wait(call, given.text_gone, seconds, gone=True):
            return
        seconds = 0.0
    if given.text is not None:
        await _wait(call, given.text, seconds, gone=False)


async def _wait(call: Call, text: str, seconds: float, *, gone: bool) -> bool:
    """Wait for a text to appear, or to disappear with `gone`. Return False if a dialog ended the wait.

    Raises:
        ToolFailed: The text did not appear or disappear in time.
    """
    from playwright.async_api import Error as Failed

    tab = await call.tab()
    bound = call.config.action_seconds + seconds

    async def come_about() -> bool:
        with anyio.fail_after(bound):
            for pause in chain((0.02, 0.05), repeat(0.1)):
                if await _shows(tab.page, text) == (not gone):
                    break
                await anyio.sleep(pause)
        return True

    try:
        came_about = await call.act(come_about, edits=False, at_once=True)
    except TimeoutError:
        call.shows_snapshot = True
        still = "is still on the page" if gone else "is not on the page"
        raise ToolFailed(
            f"{text!r} {still} after {bound:g} seconds; give a time to wait longer."
        ) from None
    if not came_about:
        still = "was still there" if gone else "was not there yet"
        tab.event_lines.append(f"{text!r} {still} when the page asked something.")
        return False
    state = "hidden" if gone else "visible"
    found = f"page.get_by_text({text!r}).filter(visible=True)"
    framed: str | None = None
    if not (gone or tab.modal_text or tab.waits_for) and len(tab.page.frames) > 1:
        # The text may be gone by now.
        with suppress(Failed):
            framed = await shown_as(tab.page, lambda frame: frame.get_by_text(text), found)
    call.answer.code(f"await {framed or f'{found}.first'}.wait_for(state={state!r})")
    call.answer.result(f"Waited for {text}")
    return True


async def _shows(page: Page, text: str) -> bool | None:
    """Return whether a text is visible in the page or one of its frames; None while the document is being replaced."""
    from playwright.async_api import Error

    for frame in page.frames:
        try:
            if await frame.get_by_text(text).filter(visible=True).count():
                return True
        except Error:
            if page.is_closed():
                raise
            if frame is page.main_frame:
                return None
    return False


TOOLS: list[BrowserTool] = [navigate, navigate_back, wait_for]
