"""The browser of one session: its context, its tabs, its files, and what happens to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ....sessions.concurrency import Overtaken, beside
from ..config import BrowserConfig
from ..egress.policy import Target
from ..features.mocks import Mocks, Offline
from ..features.recorder import Recorder
from ..features.trace import Trace
from ..features.video import Videos
from .answer import ADDRESS, TITLE, in_line
from .failures import ToolFailed
from .files import Files, reason
from .glimpse import SettledAddresses
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
"""How long a page may take to show that it is not held up by the dialog of another one."""
CLOSE_SECONDS: Final = 3.0
STEPPING: Final = "a pause before the next action"


class BrowserSession:
    """What the tools of one session share. Lives as long as its context."""

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
        """`scratch`: where the driver of the context puts what is of no use after it."""
        self.config = config
        self.context = context
        self.generation = generation
        self.files = files
        self.spawn = spawn
        self.origins = origins
        self.watch = watch = origins.watch
        self.downloads = 0
        """How many downloads are under way."""
        self.downloads_begun = 0
        self.news = TabEvents()
        self.unreached: dict[str, str] = {}
        """Which hosts were not reached, and what is told of each, since somebody emptied it."""
        self._downloads_over = anyio.Event()
        self._had_pages = False
        self.holds: set[str] = set()
        """What keeps the session from being paused: a recording, a trace, mocked requests."""
        self._stirred: list[anyio.Event] = []
        """Set when any page opens a dialog, which holds up every page of its process."""
        self._left: anyio.Event | None = None
        """Set when the action that was left behind last has ended."""
        self.stepping = False
        self.calm = SettledAddresses()
        self.withheld = TypedSecrets()
        self.clipboard: Clipboard | None = None
        """None where the browser process is the session's alone."""
        self._was_on: list[str] | None = None
        """What was on when the context was closed."""
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
        # Also because Playwright dismisses what nobody listens for, and a window may ask before it is a tab.
        context.on("dialog", self._dialog)

    async def current(self) -> Tab:
        """Return the current tab; one whose page crashed is replaced by an empty one at first use."""
        if not len(self.tabs) and self._had_pages:
            self.news.append("All pages were closed; this is a new, empty one.")
        tab = await self.tabs.ensure()
        self._had_pages = True
        if not tab.crashed:
            return tab
        url = tab.page.url
        await self.tabs.close(tab)
        self.tabs.news.append(f"The page {url} had crashed; its tab was replaced by an empty one.")
        return await self.tabs.open()

    async def unless_modal(
        self, tab: Tab, action: Callable[[], Awaitable[T]], *, answers: bool = False
    ) -> T | None:
        """Run an action until it ends or the page asks something, which keeps it from ending; then it goes on behind.

        What `answers` the dialog of the page runs whatever other tabs ask: until then the page answers nothing else.

        Raises:
            ToolFailed: another tab asks something, which holds up the page.
            whatever the action raises, while it is waited for.
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
        """Wait until an action is over, the page asks something, or it shows that another one holds it up."""
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
        """Say which other tab has a dialog open, empty when none has."""
        other = next((one for one in self.tabs if one is not tab and one.dialog is not None), None)
        if other is None:
            return ""
        what = (other.modal_text or "").partition(": can be handled")[0]
        return (
            f"Tab {self.tabs.index(other)} asks something ({what}): select it with browser_tabs and answer with "
            "browser_handle_dialog"
        )

    async def held_up(self, tab: Tab) -> bool:
        """Whether a page does not answer while another tab has a dialog open, which holds up every page of its process."""
        if tab.modal_text is not None or tab.crashed or not self.asking_beside(tab):
            return False
        with anyio.move_on_after(HELD_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        return scope.cancelled_caught

    async def refuse_held(self, tab: Tab) -> None:
        """Let pages pass that can be worked with.

        Raises:
            ToolFailed: another tab asks something, which holds up the page.
        """
        if await self.held_up(tab):
            raise ToolFailed("The page does not answer while another tab asks something.")

    async def caught_up(self, tab: Tab) -> None:
        """Wait until the action that was left behind has ended, or the page asks something again."""
        left, modal = self._left, tab.modal
        if left is None:
            return
        with suppress(Overtaken):
            await beside(left.wait, modal.wait)

    async def title(self, tab: Tab) -> str:
        """Return the title of a tab, empty when its page does not say."""
        if tab.crashed or tab.closed or tab.dialog is not None:
            return ""
        seconds = HELD_SECONDS if self.asking_beside(tab) else TITLE_SECONDS
        with suppress(Exception), anyio.move_on_after(seconds):
            return await tab.page.title()
        return ""

    async def unstick(self) -> None:
        """Free the current page when it does not run a script within some seconds.

        While another page is on its way, the browser lets none be run: then a page that is well would be freed, too.
        """
        tab = self.tabs.current
        if tab is None or tab.modal_text is not None or tab.crashed:
            return
        with anyio.move_on_after(PROBE_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.free(tab)

    async def free(self, tab: Tab) -> None:
        """Stop what a page runs without end, and give the page up where that does not help. Either is told."""
        if self.asking_beside(tab):
            return
        url = tab.page.url
        with anyio.move_on_after(CLOSE_SECONDS) as scope, suppress(Exception):
            await (await self.watch.world(tab.page)).interrupt()
            # One that goes on to the page that it was called to fails at once.
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.give_up(tab)
        else:
            self.tabs.news.append(f"What ran in the page {url} did not end, and was stopped.")

    async def give_up(self, tab: Tab) -> None:
        """Close a page that does not answer any more, and have that told; not one that another tab's dialog may hold up."""
        if self.asking_beside(tab):
            return
        url = tab.page.url
        with anyio.move_on_after(CLOSE_SECONDS):
            await self.tabs.close(tab)
        self.tabs.news.append(f"The page {url} did not answer any more and was closed.")

    async def collect(self) -> None:
        """Have the pages give back the memory that they no longer use, within a bound."""

        async def ask(tab: Tab) -> None:
            with suppress(Exception):
                await tab.page.request_gc()

        with anyio.move_on_after(PROBE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for tab in self.tabs:
                    if tab.modal_text is None and not tab.crashed:
                        tasks.start_soon(ask, tab)

    async def tab_lines(self) -> list[str]:
        """Return a line for each tab: its number, title and address. A page that does not tell its title has none."""
        entries = self.tabs.entries
        titles = {
            number: entry.title
            for number, entry in enumerate(entries)
            if not isinstance(entry, Tab)
        }

        async def ask(number: int, tab: Tab) -> None:
            titles[number] = await self.title(tab)

        # All at once: a dialog holds up every page of its process.
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
        """Have something told with the next result."""
        self.news.append(line)

    def take_unreached(self, url: str) -> str:
        """Return what is to be told of the host of an address that was not reached, empty when it was; it is told once."""
        try:
            line = self.unreached.pop(str(Target.of_url(url)), "")
        except ValueError:
            return ""
        if line in self.news:
            self.news.remove(line)
        return line

    def take_news(self) -> TabEvents:
        """Return what happened since this was asked last, but for what happened in the pages themselves: tabs have that."""
        found, self.news, of_tabs = self.news, TabEvents(), self.tabs.take_news()
        found += [*of_tabs, *self.files.take_news()]
        found.missed += of_tabs.missed
        return found

    def busy_with(self) -> str | None:
        """Say what keeps the session from being saved and closed now, None when nothing does."""
        if self.downloads:
            one = self.downloads == 1
            return f"{'a download is' if one else f'{self.downloads} downloads are'} under way"
        for tab in self.tabs:
            if tab.modal_text is not None:
                return f"a page waits: {tab.modal_text}"
        return f"{', '.join(sorted(self.holds))} is on" if self.holds else None

    async def downloaded(self, started: Sequence[Request], begun: int) -> None:
        """Wait, within the bound of settling, for downloads that an action began: since `begun`, by requests `started`."""
        if any(request.failure == "net::ERR_ABORTED" for request in started):
            # A navigation that becomes a download fails first; the browser tells so before it answers this.
            with suppress(Exception), anyio.move_on_after(TITLE_SECONDS):
                await self.context.cookies("http://session.invalid")
        if self.downloads_begun > begun:
            with anyio.move_on_after(self.config.settle_seconds):
                while self.downloads:
                    await self._downloads_over.wait()

    async def hold_back(self) -> None:
        """Have the action that follows held back, where stepping was asked for."""
        if self.stepping:
            # Not sooner: what is asked of the page to prepare the action would be held back.
            self.stepping = False
            await self.context.debugger.request_pause()

    def step(self) -> None:
        """Hold back the next action until it is resumed, and the session meanwhile."""
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
        """Say what is on and ends with the context, because nothing brings it back; after its end, what was on then."""
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
        """Forget what was on, when the context is closed. May be called twice."""
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
        self.news.append(f"Downloading {name} ...")
        try:
            try:
                await self.files.keep_download(download)
                kept = True
            except Exception as error:
                self.news.append(f"The download of {name} failed: {reason(error)}")
            await self._close_empty()
        finally:
            self.downloads -= 1
            if not self.downloads:
                self._downloads_over.set()
                self._downloads_over = anyio.Event()
        if not kept:
            await self.files.swept(download)

    async def _close_empty(self) -> None:
        """Close tabs that pages opened for a download, and that got no document, as a browser with a window does."""
        for tab in [tab for tab in self.tabs if tab is not self.tabs.current and not tab.page.url]:
            await self.tabs.close(tab)
            self.news.append("A tab that had opened for a download was closed.")


async def _dismiss(dialog: Dialog) -> None:
    """Answer a page that is none of the tabs, as Playwright does when nobody listens."""
    with suppress(Exception):
        await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())


__all__ = ["STEPPING", "BrowserSession"]
