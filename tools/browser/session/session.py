"""The browser of one session: its context, its tabs and its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ....sessions.concurrency import RaceLost, race
from ..config import BrowserConfig
from ..egress.policy import Target
from ..features.mocks import Mocks, Offline
from ..features.recorder import Recorder
from ..features.trace import Trace
from ..features.video import Videos
from .answer import ADDRESS, TITLE, in_line
from .early_snapshot import SettledAddresses
from .failures import ToolFailed
from .files import Files, reason
from .secrets import TypedSecrets
from .tab import Tab, TabEvents
from .tabs import Tabs

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Request

    from ..snapshot.storage import OriginStorage
    from .clipboard import Clipboard

T = TypeVar("T")

TITLE_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 2.0
HELD_SECONDS: Final = 0.5
"""Seconds within which a page has to answer, or it counts as blocked by the dialog of another one."""
CLOSE_SECONDS: Final = 3.0
STEPPING: Final = "a pause before the next action"


class BrowserSession:
    """The state that the tools of one session share. Lives as long as its context."""

    def __init__(
        self,
        config: BrowserConfig,
        context: BrowserContext,
        *,
        generation: int,
        files: Files,
        spawn: Callable[..., None],
        origins: OriginStorage,
        scratch: Path | None,
    ) -> None:
        """`scratch`: the folder for temporary files of the context's driver."""
        self.config = config
        self.context = context
        self.generation = generation
        self.files = files
        self.spawn = spawn
        self.origins = origins
        self.watch = watch = origins.watch
        self.downloads = 0
        """The number of downloads under way."""
        self.downloads_begun = 0
        self.event_lines = TabEvents()
        self.unreached: dict[str, str] = {}
        """The message for each host that was not reached; take_unreached() removes it."""
        self._downloads_over = anyio.Event()
        self._had_pages = False
        self.holds: set[str] = set()
        """The activities that keep the session from being paused: a recording, a trace, mocked requests."""
        self._stirred: list[anyio.Event] = []
        """Events to set when any page opens a dialog, which blocks every page of its process."""
        self._left: anyio.Event | None = None
        """Set when the last action that was left to continue in the background has ended."""
        self.stepping = False
        self.calm = SettledAddresses()
        self.typed_secrets = TypedSecrets()
        self.clipboard: Clipboard | None = None
        """None if the session has a browser process of its own."""
        self._was_on: list[str] | None = None
        """The result of on() at the time the context was closed."""
        self.mocks = Mocks(context, self.holds, spawn=spawn)
        self.offline = Offline(context, self.holds, spawn=spawn)
        self.trace = Trace(context, files, self.holds, spawn=spawn, tell=self.tell, scratch=scratch)
        self.films = Videos(
            context, files, self.holds, spawn=spawn, tell=self.tell, hidden=watch.hidden
        )
        self.recorder = Recorder(
            context, self.holds, spawn=spawn, tell=self.tell, hidden=watch.hidden
        )
        context.on("close", lambda _: self.end())
        context.debugger.on("pausedstatechanged", self._paused)
        self.tabs = Tabs(
            context,
            limit=config.tabs,
            spawn=spawn,
            on_download=self._downloading,
            hidden=watch.hidden,
        )
        self.tabs.before_close = self.films.stop_of
        # Playwright dismisses dialogs without a listener, and a window may open one before it is a tab.
        context.on("dialog", self._dialog)

    async def current(self) -> Tab:
        """Return the current tab. A tab whose page crashed is replaced by an empty one."""
        if not len(self.tabs) and self._had_pages:
            self.event_lines.append("All pages were closed; this is a new, empty one.")
        tab = await self.tabs.ensure()
        self._had_pages = True
        if not tab.crashed:
            return tab
        url = tab.page.url
        await self.tabs.close(tab)
        self.tabs.event_lines.append(
            f"The page {url} had crashed; its tab was replaced by an empty one."
        )
        return await self.tabs.open()

    async def unless_modal(
        self, tab: Tab, action: Callable[[], Awaitable[T]], *, answers: bool = False
    ) -> T | None:
        """Run an action until it ends or the page opens a dialog or file chooser; it then continues in the background.

        With `answers`, the action answers the dialog of the page, and runs whatever dialogs other tabs have open.

        Raises:
            ToolFailed: Another tab has a dialog open, which blocks the page.
            Exception: The action raised it while it was waited for.
        """
        if answers:
            tab.settle_modal()
        elif tab.modal.is_set():
            return await action()
        else:
            await self.refuse_held(tab)
        outcome: list[T] = []
        failure: list[BaseException] = []
        over, either = anyio.Event(), anyio.Event()
        scope = anyio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    outcome.append(await action())
            except Exception as error:
                failure.append(error)
            finally:
                over.set()
                either.set()

        self.spawn(run)
        self._stirred.append(either)
        try:
            with tab.asking(either):
                await either.wait()
            if not (over.is_set() or tab.modal.is_set()):
                await self._unless_held(tab, over)
        except BaseException:
            scope.cancel()
            raise
        finally:
            self._stirred.remove(either)
        if not over.is_set():
            self._left = over
        if failure:
            raise failure[0]
        return outcome[0] if outcome else None

    async def _unless_held(self, tab: Tab, over: anyio.Event) -> None:
        """Wait until an action is over, the page opens a dialog, or the dialog of another tab proves to block the page."""
        async with anyio.create_task_group() as tasks:

            async def until(event: anyio.Event) -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until, over)
            tasks.start_soon(until, tab.modal)
            if await self.held_up(tab):
                tasks.cancel_scope.cancel()

    def _dialog(self, dialog: Dialog) -> None:
        if not any(tab.page == dialog.page for tab in self.tabs):
            self.spawn(_dismiss, dialog)
            return
        for event in self._stirred:
            event.set()

    def asking_beside(self, tab: Tab) -> str:
        """Return a message about another tab that has a dialog open, or "" if there is none."""
        other = next((one for one in self.tabs if one is not tab and one.dialog is not None), None)
        if other is None:
            return ""
        what = (other.modal_text or "").partition(": can be handled")[0]
        return (
            f"Tab {self.tabs.index(other)} asks something ({what}): select it with browser_tabs and answer with "
            "browser_handle_dialog"
        )

    async def held_up(self, tab: Tab) -> bool:
        """Return whether another tab has a dialog open, which blocks every page of its process, and this page is blocked."""
        if tab.modal_text is not None or tab.crashed or not self.asking_beside(tab):
            return False
        with anyio.move_on_after(HELD_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        return scope.cancelled_caught

    async def refuse_held(self, tab: Tab) -> None:
        """Check that the dialog of another tab does not block the page.

        Raises:
            ToolFailed: It does.
        """
        if await self.held_up(tab):
            raise ToolFailed("The page does not answer while another tab asks something.")

    async def caught_up(self, tab: Tab) -> None:
        """Wait until the action left in the background has ended, or the page opens another dialog."""
        left, modal = self._left, tab.modal
        if left is None:
            return
        with suppress(RaceLost):
            await race(left.wait, modal.wait)

    async def title(self, tab: Tab) -> str:
        """Return the title of a tab, or "" if its page does not answer."""
        if tab.crashed or tab.closed or tab.dialog is not None:
            return ""
        seconds = HELD_SECONDS if self.asking_beside(tab) else TITLE_SECONDS
        with suppress(Exception), anyio.move_on_after(seconds):
            return await tab.page.title()
        return ""

    async def unstick(self) -> None:
        """Call free() for the current page if it does not run a script within some seconds.

        Do not call this during a navigation: the browser then runs no scripts, so a healthy page would be freed, too.
        """
        tab = self.tabs.current
        if tab is None or tab.modal_text is not None or tab.crashed:
            return
        with anyio.move_on_after(PROBE_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.free(tab)

    async def free(self, tab: Tab) -> None:
        """Stop the endless script of a page, and close the page if that does not help. The next answer tells which."""
        if self.asking_beside(tab):
            return
        url = tab.page.url
        with anyio.move_on_after(CLOSE_SECONDS) as scope, suppress(Exception):
            await (await self.watch.world(tab.page)).interrupt()
            # This fails at once if the page continues with a pending navigation.
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.give_up(tab)
        else:
            self.tabs.event_lines.append(
                f"A script in the page {url} did not end, and was stopped."
            )

    async def give_up(self, tab: Tab) -> None:
        """Close a page that no longer answers, and report it. A page that another tab's dialog may block is left open."""
        if self.asking_beside(tab):
            return
        url = tab.page.url
        with anyio.move_on_after(CLOSE_SECONDS):
            await self.tabs.close(tab)
        self.tabs.event_lines.append(f"The page {url} did not answer any more and was closed.")

    async def collect(self) -> None:
        """Let the pages collect garbage, within PROBE_SECONDS."""

        async def ask(tab: Tab) -> None:
            with suppress(Exception):
                await tab.page.request_gc()

        with anyio.move_on_after(PROBE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for tab in self.tabs:
                    if tab.modal_text is None and not tab.crashed:
                        tasks.start_soon(ask, tab)

    async def tab_lines(self) -> list[str]:
        """Return a line for each tab: its number, title and address. The title is empty if the page does not answer."""
        entries = self.tabs.entries
        titles = {
            number: entry.title
            for number, entry in enumerate(entries)
            if not isinstance(entry, Tab)
        }

        async def ask(number: int, tab: Tab) -> None:
            titles[number] = await self.title(tab)

        # Concurrently: a dialog blocks every page of its process, so each of them takes its whole timeout.
        async with anyio.create_task_group() as tasks:
            for number, entry in enumerate(entries):
                if isinstance(entry, Tab):
                    tasks.start_soon(ask, number, entry)
        current = self.tabs.place
        return [
            f"- {number}:{' (current)' if number == current else ''}"
            f" [{in_line(titles[number], TITLE)}]({in_line(entry.url, ADDRESS)})"
            for number, entry in enumerate(entries)
        ]

    def tell(self, line: str) -> None:
        """Add a line to the events of the next result."""
        self.event_lines.append(line)

    def take_unreached(self, url: str) -> str:
        """Return and remove the message about the unreached host of an address; "" if it was reached."""
        try:
            line = self.unreached.pop(str(Target.of_url(url)), "")
        except ValueError:
            return ""
        if line in self.event_lines:
            self.event_lines.remove(line)
        return line

    def take_events(self) -> TabEvents:
        """Return the events since the last call, except those inside pages, which Tab.take_events() returns."""
        found, self.event_lines, of_tabs = self.event_lines, TabEvents(), self.tabs.take_events()
        found += [*of_tabs, *self.files.take_events()]
        found.missed += of_tabs.missed
        return found

    def busy_with(self) -> str | None:
        """Return the reason why the session cannot be saved and closed now, or None."""
        if self.downloads:
            one = self.downloads == 1
            return f"{'a download is' if one else f'{self.downloads} downloads are'} under way"
        for tab in self.tabs:
            if tab.modal_text is not None:
                return f"a page waits: {tab.modal_text}"
        return f"{', '.join(sorted(self.holds))} is on" if self.holds else None

    async def downloaded(self, started: Sequence[Request], begun: int) -> None:
        """Wait, at most `settle_seconds`, for downloads that an action began.

        `started` are the action's requests; `begun` is the value of `downloads_begun` before it.
        """
        if any(request.failure == "net::ERR_ABORTED" for request in started):
            # A navigation that becomes a download fails first; the download event arrives before the answer to this query.
            with suppress(Exception), anyio.move_on_after(TITLE_SECONDS):
                await self.context.cookies("http://session.invalid")
        if self.downloads_begun > begun:
            with anyio.move_on_after(self.config.settle_seconds):
                while self.downloads:
                    await self._downloads_over.wait()

    async def hold_back(self) -> None:
        """If step() was called, let the debugger hold back the action that follows."""
        if self.stepping:
            # Not in step(): queries that prepare the action would be held back, too.
            self.stepping = False
            await self.context.debugger.request_pause()

    def step(self) -> None:
        """Hold back the next action until it is resumed. The session is not paused meanwhile."""
        self.stepping = True
        self.holds.add(STEPPING)

    def _paused(self, _: object = None) -> None:
        details = self.context.debugger.paused_details
        if details is not None:
            if self.tabs.current is not None:
                self.tabs.current.pause(details["title"])
            return
        self.holds.discard(STEPPING)
        for tab in self.tabs:
            if tab.paused is not None:
                tab.settle_modal()

    def on(self) -> list[str]:
        """Return, in words, the activities that end with the context and are not restored.

        They are recordings, mocked routes, the offline state and downloads. After the end of the context, return those that
        were active then.
        """
        if self._was_on is not None:
            return self._was_on
        words = [str(self.mocks)] if len(self.mocks) else []
        words += [self.offline.held.what] if self.offline.on else []
        words += [STEPPING] if STEPPING in self.holds else []
        recorded = (self.trace.held, self.films.held, self.recorder.held)
        words += [held.what for held in recorded if held.on]
        if self.downloads:
            one = self.downloads == 1
            words.append(
                f"{'a download that was' if one else f'{self.downloads} downloads that were'} under way"
            )
        return words

    def end(self) -> None:
        """End all activities after the context is closed; on() keeps their list. May be called twice."""
        self._was_on = self.on()
        recorded = (self.trace.held, self.films.held, self.recorder.held)
        for held in (*recorded, self.mocks.held, self.offline.held):
            held.end()
        self.films.lose()

    def _downloading(self, tab: Tab, download: Download) -> None:
        self.downloads += 1
        self.downloads_begun += 1
        self.spawn(self._keep_download, tab, download)

    async def _keep_download(self, tab: Tab, download: Download) -> None:
        name, kept = download.suggested_filename[:200], False
        self.event_lines.append(f"Downloading {name} ...")
        try:
            try:
                await self.files.keep_download(download)
                kept = True
            except Exception as error:
                self.event_lines.append(f"The download of {name} failed: {reason(error)}")
            await self._close_empty()
        finally:
            self.downloads -= 1
            if not self.downloads:
                self._downloads_over.set()
                self._downloads_over = anyio.Event()
        if not kept:
            await self.files.swept(download)

    async def _close_empty(self) -> None:
        """Close tabs that pages opened for a download and that got no document, as a browser with a window does."""
        for tab in [tab for tab in self.tabs if tab is not self.tabs.current and not tab.page.url]:
            await self.tabs.close(tab)
            self.event_lines.append("A tab that had opened for a download was closed.")


async def _dismiss(dialog: Dialog) -> None:
    """Answer a dialog of a page that is no tab, as Playwright does without a listener."""
    with suppress(Exception):
        await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())


__all__ = ["STEPPING", "BrowserSession"]
