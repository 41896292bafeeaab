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
from .. import errors
from ..call import BrowserCall
from ..egress.network_policy import scheme_allowed
from ..errors import BrowserToolFailed, describe_error
from ..session.early_snapshot import prepare
from ..session.locator import find_element
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
async def navigate(call: BrowserCall, arguments: Navigate) -> None:
    """Open a URL in the current tab and answer with the page's snapshot."""
    await go_to(call, arguments.url)


async def go_to(call: BrowserCall, address: str) -> None:
    """Open the address that the caller wrote in the current tab.

    Raises:
        BrowserToolFailed: It may not be opened, or cannot be.
    """
    url = parse_url(address)
    if password := urlsplit(url).password:
        call.session.secrets.add(password)
    milliseconds = call.config.navigation_seconds * 1000

    async def go() -> None:
        tab = await call.tab()
        try:
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=milliseconds)
        except errors.Error as error:
            if "Download is starting" in str(error):
                return
            if "interrupted by another navigation" not in str(error):
                raise
            # The error page of an aborted navigation is still loading: try once more.
            await tab.page.goto(url, wait_until="domcontentloaded", timeout=milliseconds)

    with _report_failure(call, address):
        try:
            if not await _navigate_unless_hung(call, go):
                await call.act(go, edits=False, at_once=True)
        except errors.TimeoutError:
            await _stop_loading(call)
            raise
    call.answer.code(f"await page.goto({url!r})")


@contextmanager
def _report_failure(call: BrowserCall, address: str) -> Generator[None]:
    """Raise BrowserToolFailed if the page that the block opens fails, or if our proxy answered in place of its site."""
    call.session.host_errors.clear()
    try:
        yield
        reason = _egress_error(call)
    except errors.Error as error:
        reason = _egress_error(call) or describe_error(error)
    if reason:
        raise BrowserToolFailed(f"{address[:2000]} could not be opened: {reason}")


def _egress_error(call: BrowserCall) -> str:
    tab = call.session.tabs.current
    request = None if tab is None else tab.last_navigation
    if request is None:
        return ""
    response = request.existing_response
    if response is not None and response.status < 400:
        return ""
    return call.session.host_errors.take(request.url)


async def _stop_loading(call: BrowserCall) -> None:
    """Stop all loading of the page: an endless response would take more and more memory."""
    tab = call.session.tabs.current
    if tab is not None:
        await _stop_tab(call, tab)
    await call.session.free_stuck_page()


async def _stop_tab(call: BrowserCall, tab: Tab) -> None:
    with suppress(Exception), anyio.move_on_after(ARRIVE_SECONDS):
        await (await call.session.watch.world(tab.page)).stop()
        while tab.pending_url:
            await tab.wait_for_change()


async def _navigate_unless_hung(call: BrowserCall, go: Callable[[], Awaitable[None]]) -> bool:
    """Navigate by `go`. Return False if the old page hung, which blocks the navigation, and was closed."""
    tab = await call.tab()
    page, arrived, is_responsive = tab.page, anyio.Event(), anyio.Event()
    was_closed = False

    def note(frame: Frame) -> None:
        if frame.parent_frame is None:
            arrived.set()

    async def ask() -> None:
        # Started before the navigation: while it is pending, the browser does not run scripts in the old page.
        with suppress(Exception):
            await (await call.session.watch.world(page)).evaluate("1")
            is_responsive.set()

    async def watch() -> None:
        nonlocal was_closed
        with anyio.move_on_after(HANGS_SECONDS):
            await arrived.wait()
        if not (arrived.is_set() or is_responsive.is_set()):
            with anyio.CancelScope(shield=True):
                # The page has to be closed: during a navigation the browser cannot stop a script of the old page.
                await call.session.close_hung(tab)
            was_closed = page.is_closed()

    async def make_ready() -> None:
        await arrived.wait()
        await prepare(tab)

    failure: Error | BrowserToolFailed | None = None
    page.on("framenavigated", note)
    try:
        async with anyio.create_task_group() as tasks:
            if not tab.pending_url:
                tasks.start_soon(ask)
                tasks.start_soon(watch)
            if call.config.snapshot != "none":
                # Prepare the snapshot while the rest of the page loads.
                tasks.start_soon(make_ready)
            try:
                await call.act(go, edits=False, at_once=True)
            except (errors.Error, BrowserToolFailed) as error:
                # Raised below: the task group would wrap it.
                failure = error
                if "net::ERR_" in str(error) and "net::ERR_ABORTED" not in str(error):
                    # The browser's error page is still loading; a snapshot that begins before would take a second.
                    with anyio.move_on_after(ARRIVE_SECONDS):
                        await arrived.wait()
            tasks.cancel_scope.cancel()
    finally:
        page.remove_listener("framenavigated", note)
    if failure is not None and not page.is_closed():
        raise failure
    # The new page may have arrived while the old one was being closed, and was closed with it.
    return failure is None and not was_closed


def parse_url(text: str) -> str:
    """Return a URL, with a scheme added if it has none.

    Raises:
        BrowserToolFailed: The text is no URL, or its scheme is not allowed.
    """
    url = text.strip()
    if not url:
        raise BrowserToolFailed("The URL is empty.")
    try:
        if not urlsplit(url).scheme or url.partition(":")[2][:1].isdigit():
            local = url.startswith(("localhost", "127."))
            url = f"{'http' if local else 'https'}://{url}"
        host = _host(url)
    except ValueError as error:
        raise BrowserToolFailed(f"{text.strip()[:2000]!r} is no URL: {error}.") from None
    if host is not None and (not host or re.search(r"\s", host)):
        raise BrowserToolFailed(
            f"{text.strip()[:2000]!r} is no URL; write one such as https://example.com."
        )
    if not scheme_allowed(url):
        scheme = url.partition(":")[0]
        raise BrowserToolFailed(
            f"{scheme}: URLs may not be opened; open an http:// or https:// one."
        )
    return url


def _host(url: str) -> str | None:
    """Return the host of an http or https URL, None for other schemes. Raises ValueError for an invalid URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    return "" if parts.port == 0 else parts.hostname or ""


@tool("browser_navigate_back", title="Go back", limit="navigation")
async def navigate_back(call: BrowserCall, arguments: NoArguments) -> None:
    """Go back to the page before this one in the history of the tab."""
    tab = await call.tab()
    past = await _earlier_entries(call, tab)
    if past == []:
        raise BrowserToolFailed("There is no earlier page in the history of this tab.")
    if past is not None and "id" not in past[-1]:
        await _load_earlier_page(call, tab, past[-1]["url"])
        return
    if tab.pending_url:
        # Stop a pending navigation first: its failure would be reported as that of going back.
        await _stop_tab(call, tab)
    milliseconds = call.config.navigation_seconds * 1000
    with _report_failure(call, past[-1]["url"] if past else "The page before"):
        await call.act(
            lambda: tab.page.go_back(wait_until="domcontentloaded", timeout=milliseconds),
            edits=False,
            at_once=True,
        )
    call.answer.code("await page.go_back()")


async def _earlier_entries(call: BrowserCall, tab: Tab) -> list[JSON] | None:
    """Return the history entries before the current page, or None if the browser does not report them."""
    try:
        entries, index = await (await call.session.watch.world(tab.page)).history()
    except errors.Error:
        # A browser at an endpoint may not support the query; going back works all the same.
        return None
    return entries[:index]


async def _load_earlier_page(call: BrowserCall, tab: Tab, address: str) -> None:
    url = parse_url(address)
    world = await call.session.watch.world(tab.page)
    milliseconds = call.config.navigation_seconds * 1000
    with _report_failure(call, url):
        await call.act(
            lambda: tab.load_history_entry(world, url, milliseconds=milliseconds),
            edits=False,
            at_once=True,
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
async def wait_for(call: BrowserCall, arguments: WaitFor) -> None:
    """Wait until a text appears or disappears, or for some seconds, and answer with the page's snapshot."""
    seconds = min(arguments.time or 0.0, LONGEST_WAIT)
    if arguments.text is None and arguments.text_gone is None:
        if arguments.time is None:
            raise BrowserToolFailed("Say what to wait for: a text, a textGone or a time.")
        call.expected_seconds = seconds
        began = anyio.current_time()
        await call.act(lambda: anyio.sleep(seconds), edits=False, at_once=True)
        # A dialog or file chooser ends the wait early.
        seconds = min(seconds, anyio.current_time() - began)
        call.answer.code(f"await page.wait_for_timeout({seconds * 1000:.4g})")
        call.answer.result(f"Waited for {seconds:.4g} seconds")
        return
    if arguments.text_gone is not None:
        if not await _wait_for_text(call, arguments.text_gone, seconds, hidden=True):
            return
        seconds = 0.0
    if arguments.text is not None:
        await _wait_for_text(call, arguments.text, seconds, hidden=False)


async def _wait_for_text(call: BrowserCall, text: str, seconds: float, *, hidden: bool) -> bool:
    """Wait for a text to appear, or to disappear with `is_hidden`. Return False if a dialog ended the wait.

    Raises:
        BrowserToolFailed: The text did not appear or disappear in time.
    """
    tab = await call.tab()
    text = call.session.secrets.named.insert(text, tab.page.url)
    limit = call.config.action_seconds + seconds

    async def poll() -> bool:
        with anyio.fail_after(limit):
            for pause in chain((0.02, 0.05), repeat(0.1)):
                if await _shows_text(tab.page, text) == (not hidden):
                    break
                await anyio.sleep(pause)
        return True

    try:
        succeeded = await call.act(poll, edits=False, at_once=True)
    except TimeoutError:
        call.shows_snapshot = True
        still = "is still on the page" if hidden else "is not on the page"
        raise BrowserToolFailed(
            f"{text!r} {still} after {limit:g} seconds; give a time to wait longer."
        ) from None
    if not succeeded:
        still = "was still there" if hidden else "was not there yet"
        tab.event_lines.append(f"{text!r} {still} when the page asked something.")
        return False
    state = "hidden" if hidden else "visible"
    code = f"page.get_by_text({text!r})"
    locator: str | None = None
    if not (hidden or tab.modal_text or tab.pending_url):
        # The text may be gone by now.
        with suppress(errors.Error):
            locator = await find_element(tab.page, lambda frame: frame.get_by_text(text), code)
    locator = locator or f"{code}.filter(visible=True).first"
    call.answer.code(f"await {locator}.wait_for(state={state!r})")
    call.answer.result(f"Waited for {text}")
    return True


async def _shows_text(page: Page, text: str) -> bool | None:
    """Return whether a text is visible in the page or one of its frames; None while the document is being replaced."""
    for frame in page.frames:
        try:
            if await frame.get_by_text(text).filter(visible=True).count():
                return True
        except errors.Error:
            if page.is_closed():
                raise
            if frame is page.main_frame:
                return None
    return False


TOOLS: list[BrowserTool] = [navigate, navigate_back, wait_for]
