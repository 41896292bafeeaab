"""One page of a session and its events: console, requests, dialogs, file choosers, downloads and its crash."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio

from .. import errors
from ..devtools.world import World
from .page_activity import Activity, FrameActivity
from .traffic import Traffic

if TYPE_CHECKING:
    from playwright.async_api import (
        ConsoleMessage,
        Dialog,
        Download,
        Error,
        FileChooser,
        Frame,
        Page,
        Request,
        Response,
    )

MAX_KEPT: Final = 1000
"""The number of console messages, and of requests, that are kept of a page."""
EVENT_LINES: Final = 1000
"""The number of event lines that are kept for the next answer."""
MAX_DIALOGS: Final = 20
"""The most dialogs that a page may open between two calls; further ones are dismissed unseen."""

FLOOD: Final = 5000
"""The most requests, messages, errors and addresses of a page within FLOOD_SECONDS: more would block all other work."""
FLOOD_SECONDS: Final = 10.0
FLOOD_SIZE: Final = 256 * 2**20
"""The most characters in FLOOD of them together: Playwright and its driver keep the last few thousand in memory."""

_ABORTED: Final = "net::ERR_ABORTED"
"""The failure of a navigation request that left the current page in place."""

LEAVE_SECONDS: Final = 1.0
"""Seconds to wait for the error page of a failed navigation."""

Level = Literal["error", "warning", "info", "debug"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "info", "debug")
_LEVEL: Final[dict[str, Level]] = {
    "error": "error",
    "assert": "error",
    "warning": "warning",
    "debug": "debug",
    "trace": "debug",
}


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """A console message of a page, or an uncaught error."""

    level: Level
    kind: str
    text: str
    location: str

    def __str__(self) -> str:
        # Indent further lines, so that text of the page does not look like another section.
        text = re.sub(r"(?:\r\n?|\n)(?=\S)", "\n  ", self.text)
        if self.kind == "uncaught":
            return text
        at = f" @ {self.location}" if self.location else ""
        return f"[{self.kind.upper()}] {text}{at}"


class TabEvents(list[str]):
    """Event lines that were not reported yet. Beyond EVENT_LINES, further ones only increase `omitted_count`."""

    omitted_count = 0

    def append(self, line: str, /) -> None:
        if len(self) < EVENT_LINES:
            super().append(line)
        else:
            self.omitted_count += 1


class Tab:
    """A page. It lives as long as the page does; `closed` is true afterwards.

    All methods run on the event loop, so there are no locks. Event handlers never wait.
    """

    def __init__(
        self,
        page: Page,
        number: int = 1,
        *,
        spawn: Callable[..., None],
        on_download: Callable[[Tab, Download], None],
        on_flood: Callable[[Tab], None],
        console_level: Level = "error",
        cut: Callable[[str, int], str] = lambda text, most: text[:most],
    ) -> None:
        """`cut` returns the beginning of a text, see NamedSecrets.cut()."""
        self.page = page
        self._cut = cut
        self.number = number
        """The number of the tab in its context, from 1. Unlike its index it never changes and is never used again."""
        self.closed = False
        self.crashed = False
        self.console: deque[ConsoleLine] = deque(maxlen=MAX_KEPT)
        self._message_count = self._message_count_before = 0
        """The number of messages, and the number of those before the page was loaded."""
        self._request_count = 0
        """The number of requests since the page was loaded."""
        self.requests: deque[Request] = deque(maxlen=MAX_KEPT)
        self.traffic = Traffic()
        self.activity = Activity()
        self.frame_activity = FrameActivity(page)
        self.copied_texts: dict[str, str] | None = None
        """The texts that the page copied in the last action, by their type."""
        self._document_request: Request | None = None
        """The request for the page that is shown; its body may still be arriving."""
        self.dialog: Dialog | None = None
        self.chooser: FileChooser | None = None
        self.paused_action: str | None = None
        """The action that Playwright's debugger holds back."""
        self.modal = anyio.Event()
        """Set while a dialog, a file chooser or an action held back by the debugger waits for an answer."""
        self._modal_events: list[anyio.Event] = []
        self.event_lines = TabEvents()
        self._reported_levels = LEVELS[: LEVELS.index(console_level) + 1]
        self._new_messages = {level: TabEvents() for level in self._reported_levels}
        """The lines about messages that were not reported yet, by level."""
        self.last_snapshot: str | None = None
        """The last snapshot of the document that was read; it has the roles and names of refs."""
        self.shown_snapshot: str | None = None
        """The last snapshot of the document that an answer described, for the difference to it."""
        self.on_document: Callable[[], None] = lambda: None  # see AgentScripts
        self.secret_fields: dict[str, str] = {}
        """By ref, the fields whose values snapshots do not show, with the texts that they show instead."""
        self.stage: Literal["unknown", "loading", "loaded"] = "unknown"
        """The progress of the last navigation, as known from events: a query to Playwright takes several messages."""
        self.change = anyio.Event()
        """Set, and replaced, when a request ends, the page navigates, is loaded, crashes or closes."""
        self._dialogs = self._dialogs_before = 0
        self._spawn = spawn
        self._on_download = on_download
        self._on_flood = on_flood
        self.flooded = False
        """Whether the page exceeded FLOOD or FLOOD_SIZE and is being closed for that."""
        self._flood_count = self._flood_size = 0
        self._flood_start = time.monotonic()
        self._listen()

    def __repr__(self) -> str:
        return f"<Tab {self.page.url[:80]!r}{' crashed' if self.crashed else ''}>"

    def _listen(self) -> None:
        page = self.page
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)
        page.on("request", self._on_request)
        page.on("response", self._on_response)
        page.on("requestfinished", self._on_request_end)
        page.on("requestfailed", self._on_request_end)
        page.on("framenavigated", self._on_navigation)
        page.on("domcontentloaded", self._on_document)
        page.on("load", self._on_load)
        page.on("dialog", self._on_dialog)
        page.on("dialogclosed", self._on_dialog_closed)
        page.on("filechooser", self._on_chooser)
        page.on("download", lambda download: self._on_download(self, download))
        page.on("crash", self._on_crash)
        page.on("close", self._on_close)

    @property
    def url(self) -> str:
        return self.page.url

    async def load_history_entry(self, world: World, url: str, *, milliseconds: float) -> None:
        """Go back to a history entry of which only the address is known, by loading it.

        Raises:
            playwright's Error: The address cannot be loaded. If an error page took its place, the tab is still moved back.
        """
        entries, index = await world.history()
        try:
            await self.page.goto(url, wait_until="domcontentloaded", timeout=milliseconds)
        except errors.TimeoutError:
            # An endless response would take more and more memory.
            await world.stop()
            raise
        finally:
            with suppress(errors.Error):
                if await self._wait_for_new_entry(world, entries[index]["id"]):
                    urls = [str(entry["url"]) for entry in entries]
                    await world.reset_history(urls[: index - 1], urls[index:])

    async def _wait_for_new_entry(self, world: World, entry: int) -> bool:
        with anyio.move_on_after(LEAVE_SECONDS):
            while True:
                change = self.change
                entries, index = await world.history()
                if entries[index]["id"] != entry:
                    return True
                await change.wait()
        return False

    def record_requests(self) -> Sequence[Request]:
        """Begin a new list of requests and return it; the requests that follow are added to it."""
        requests = self.traffic.begin_action()
        if self._dialogs == self._dialogs_before:
            self._dialogs = 0
        # The count goes on if the answer to a dialog made the page open another one.
        self._dialogs_before = self._dialogs
        return requests

    async def wait_for_change(self) -> None:
        """Wait until a request ends, the page navigates or is loaded, or it is gone."""
        await self.change.wait()

    @property
    def pending_url(self) -> str:
        """The address of a pending navigation that was not answered yet; "" if there is none."""
        frame = self.page.main_frame
        pending = (
            r
            for r in self.traffic.pending
            if r is not self._document_request and _is_navigation(r, frame)
        )
        return next((self._cut(request.url, 500) for request in pending), "")

    @property
    def last_navigation(self) -> Request | None:
        """The last request for a page in this tab since the last call of record_requests()."""
        frame = self.page.main_frame
        return next((r for r in reversed(self.traffic.recent) if _is_navigation(r, frame)), None)

    def failed_navigation(self, explain: Callable[[str, str], str]) -> str:
        """Return a line about a failed navigation: the error status of the site, or why there was no answer; else "".

        `explain` returns the reason of a failure from the address and the error of the browser.
        """
        frame = self.page.main_frame
        if frame.url.startswith("chrome-error:"):
            for failed in reversed(self.requests):
                if _is_navigation(failed, frame) and failed.failure not in (None, _ABORTED):
                    reason = explain(failed.url, str(failed.failure)).removesuffix(".")
                    return f"Not opened: {self._cut(failed.url, 500)} ({reason})"
            return ""
        request = self._document_request
        answer = None if request is None else request.existing_response
        if request is None or answer is None or answer.status < 400:
            return ""
        # A page that was opened without a request since, such as about:blank, has no status.
        is_current = _without_fragment(request.url) == _without_fragment(frame.url)
        return (
            f"HTTP status: {answer.status} {answer.status_text[:100]}".rstrip()
            if is_current
            else ""
        )

    @property
    def navigation_hint(self) -> str:
        """The pending navigation and a hint about it, in brackets; "" if there is none."""
        url = self.pending_url
        hint = f"{url} did not answer yet; wait with browser_wait_for, or open another page"
        return f" ({hint})" if url else ""

    def _notify_change(self) -> None:
        self.change.set()
        self.change = anyio.Event()

    def _on_console(self, message: ConsoleMessage) -> None:
        level = _LEVEL.get(message.type, "info")
        source = message.location
        location = (
            f"{self._cut(source['url'], 500)}:{source['lineNumber']}" if source.get("url") else ""
        )
        text = message.text
        line = ConsoleLine(level, message.type, self._cut(text, 10_000), location)
        self._count_event(len(text))
        self._add_message(line)
        if level in self._new_messages:
            self._new_messages[level].append(self._cut(f"New console {level}: {line}", 500))

    def _add_message(self, line: ConsoleLine) -> None:
        self._message_count += 1
        self.console.append(line)

    def page_console(self) -> list[ConsoleLine]:
        """Return the messages since the page was loaded."""
        messages = list(self.console)
        return messages[
            max(0, len(messages) - (self._message_count - self._message_count_before)) :
        ]

    def numbered_requests(self) -> list[tuple[int, Request]]:
        """Return the last MAX_KEPT requests since the page was loaded, numbered from 1."""
        first = self._request_count - len(self.requests) + 1
        return list(enumerate(self.requests, first))

    def description_state(self) -> object:
        """Return the parts of the page's description that can be compared without a query to the page."""
        return self.page.url, self.count_problems()

    def count_problems(self) -> tuple[int, int]:
        """Return the number of errors and of warnings since the page was loaded."""
        levels = [line.level for line in self.page_console()]
        return levels.count("error"), levels.count("warning")

    def _on_error(self, error: Error) -> None:
        text = error.stack or str(error)
        self._count_event(len(text))
        text = self._cut(text, 10_000)
        self._add_message(ConsoleLine("error", "uncaught", text, ""))
        self._new_messages["error"].append(self._cut(f"New uncaught error: {error}", 500))

    def count_request(self, request: Request) -> None:
        """Count a request of the page, or of the service worker of its site, against the flood limits."""
        self._count_event(len(request.url) + len(request.post_data_buffer or b""))

    def _count_event(self, size: int) -> None:
        """Count an event of the page, with its size in characters, against the flood limits."""
        self._flood_count += 1
        self._flood_size += size
        too_much = self._flood_size > FLOOD_SIZE
        if self._flood_count >= FLOOD:
            now = time.monotonic()
            too_much = too_much or now - self._flood_start < FLOOD_SECONDS
            self._flood_count, self._flood_size, self._flood_start = 0, 0, now
        if too_much and not self.flooded:
            self.flooded = True
            self._on_flood(self)

    def _on_request(self, request: Request) -> None:
        self.count_request(request)
        self.requests.append(request)
        self._request_count += 1
        self.traffic.record_request(request)
        if request.is_navigation_request():
            self.stage = "unknown"

    def _on_response(self, response: Response) -> None:
        self.traffic.record_answer(response.request)
        self._notify_change()

    def _on_request_end(self, request: Request) -> None:
        self.traffic.record_end(request)
        self._notify_change()

    def _on_navigation(self, frame: Frame) -> None:
        self._count_event(len(frame.url))
        if frame.parent_frame is not None:
            return
        # A navigation starts the requests and messages anew; a mere change of the fragment does not.
        requests = list(self.requests)
        for number in range(len(requests) - 1, -1, -1):
            if requests[number] in self.traffic.pending and _is_navigation(requests[number], frame):
                if _without_fragment(requests[number].url) == _without_fragment(frame.url):
                    self._document_request = requests[number]
                number = _first_of_redirects(requests, number)
                self.requests = deque(requests[number:], maxlen=MAX_KEPT)
                self._request_count = len(self.requests)
                self.traffic.begin_document(set(requests[number:]))
                self._message_count_before = self._message_count
                self.stage = "loading"
                self._forget_document()
                self.on_document()
                break
        self._notify_change()

    def _on_document(self, _: Page) -> None:
        if self.stage != "loading":
            # A document without a request, such as about:blank.
            self._forget_document()

    def _forget_document(self) -> None:
        self.last_snapshot = self.shown_snapshot = None
        self.secret_fields.clear()

    def _on_load(self, _: Page) -> None:
        self.stage = "loaded"
        self._notify_change()

    def _on_dialog(self, dialog: Dialog) -> None:
        self._dialogs += 1
        if self._dialogs > MAX_DIALOGS:
            if self._dialogs == MAX_DIALOGS + 1:
                self.event_lines.append(
                    "The page opens one dialog after the other; they are dismissed."
                )
            self._spawn(dialog.dismiss)
            return
        self.dialog = dialog
        self._open_modal()

    def _on_dialog_closed(self, dialog: Dialog) -> None:
        """Record that a dialog got its answer, maybe from a person who sees the browser."""
        if self.dialog is dialog:
            self.clear_modal()

    def _on_chooser(self, chooser: FileChooser) -> None:
        self.chooser = chooser
        self._open_modal()

    def reopen_chooser(self, chooser: FileChooser) -> None:
        """Record that a file chooser still waits for files."""
        self._on_chooser(chooser)

    def pause(self, action: str) -> None:
        """Record that the debugger holds back an action until it is resumed."""
        self.paused_action = action
        self._open_modal()

    def _open_modal(self) -> None:
        self.modal.set()
        for event in self._modal_events:
            event.set()

    @contextmanager
    def signal_modal(self, event: anyio.Event) -> Generator[None]:
        """While the block runs, set `event` when the page opens a dialog or file chooser."""
        self._modal_events.append(event)
        try:
            yield
        finally:
            self._modal_events.remove(event)

    def clear_modal(self) -> None:
        """Record that the dialog, file chooser or held action got its answer."""
        self.dialog = self.chooser = self.paused_action = None
        self.modal = anyio.Event()

    @property
    def modal_text(self) -> str | None:
        """A description of the dialog, file chooser or held action that waits, with the tool that answers it; or None."""
        if self.dialog is not None:
            kind, message = self.dialog.type, re.sub(r"\s+", " ", self.dialog.message)
            message = self._cut(message, 500)
            return f'["{kind}" dialog with message "{message}"]: can be handled by browser_handle_dialog'
        if self.chooser is not None:
            return "[File chooser]: can be handled by browser_file_upload"
        if self.paused_action is not None:
            return f"[Held back: {self.paused_action[:500]}]: can be handled by browser_resume"
        return None

    def _on_crash(self, _: object) -> None:
        self.crashed = True
        self._open_modal()
        self._notify_change()

    def _on_close(self, _: object) -> None:
        self.closed = True
        self.clear_modal()
        self._notify_change()

    def take_events(self) -> TabEvents:
        """Return the events of the page since the last call."""
        events, self.event_lines = self.event_lines, TabEvents()
        return events

    def forget_events(self) -> None:
        """Forget the messages, the requests, the events and the snapshots of the page: a person used it."""
        self.console.clear()
        self.requests.clear()
        self.take_events()
        self.take_messages()
        self.last_snapshot = self.shown_snapshot = None

    def take_messages(self) -> list[TabEvents]:
        """Return the lines about messages since the last call, for each level that is reported, errors first."""
        messages = list(self._new_messages.values())
        self._new_messages = {level: TabEvents() for level in self._reported_levels}
        return messages


def _first_of_redirects(requests: list[Request], number: int) -> int:
    """Return the index of the first request in the chain of redirects that led to the one at `number`."""
    while (before := requests[number].redirected_from) in requests[:number]:
        assert before is not None
        number = requests.index(before)
    return number


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]


def _is_navigation(request: Request, frame: Frame) -> bool:
    return request.is_navigation_request() and request.frame == frame
