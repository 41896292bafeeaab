"""The browser of one session: its context, its tabs and its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ....sessions.concurrency import RaceLost, race
from ....sessions.one_line import cut_line
from ..answers.answer import ADDRESS, TITLE
from ..config import BrowserConfig
from ..egress.network_policy import scheme_allowed
from ..errors import BrowserToolFailed
from ..secrets.named import NamedSecrets
from ..secrets.session_secrets import SessionSecrets
from .agent_scripts import AgentScripts
from .early_snapshot import SettledAddresses
from .files import Files, reason
from .host_errors import HostErrors
from .init_page import ListenerErrors
from .mocks import Mocks, Offline
from .recording.markdown_log import RecordedCode
from .recording.trace import Trace
from .recording.video import Videos
from .tab import Tab, TabEvents
from .tab_list import Entry, Tabs, dismiss_dialog

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Request

    from ..snapshot.saved_storage import OriginStorage
    from .clipboard import Clipboard

T = TypeVar("T")

TITLE_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 2.0
BLOCKED_SECONDS: Final = 0.5
"""Seconds within which a page has to answer, or it counts as blocked by the dialog of another one."""
CLOSE_SECONDS: Final = 3.0
LEAVE_SECONDS: Final = 2.0
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
        has_local_callers: bool = False,
        has_touch: bool = False,
        secrets: NamedSecrets | None = None,
    ) -> None:
        """`has_local_callers`: every caller has access to this machine. `has_touch`: pages have a touch screen.

        `scratch`: the folder for temporary files of the context's driver."""
        self.config = config
        self.has_local_callers = has_local_callers
        self.has_touch = has_touch
        self.context = context
        self.generation = generation
        self.files = files
        self.spawn = spawn
        self.origins = origins
        self.watch = watch = origins.watch
        self.downloads_active = 0
        """The number of downloads under way."""
        self.downloads_total = 0
        self.event_lines = TabEvents()
        self.host_errors = HostErrors()
        self.listener_errors = ListenerErrors()
        self._downloads_change = anyio.Event()
        """Set, and replaced, when a download begins or ends."""
        self._had_pages = False
        self.holds: set[str] = set()
        """The activities that keep the session from being paused: a trace, a video, mocked requests."""
        self._dialog_events: list[anyio.Event] = []
        """Events to set when any page opens a dialog, which blocks every page of its process."""
        self._background_action: anyio.Event | None = None
        """Set when the last action that was left to continue in the background has ended."""
        self.stepping = False
        self.refs_are_void = False
        """Whether a person used the pages since the last snapshot that an answer described."""
        self.settled_addresses = SettledAddresses()
        self.secrets = SessionSecrets(secrets)
        self.clipboard: Clipboard | None = None
        """None if the session has a browser process of its own."""
        self._final_activities: list[str] | None = None
        """The result of on() at the time the context was closed."""
        self.mocks = Mocks(context, self.holds, spawn=spawn)
        self.offline = Offline(watch, self.holds, spawn=spawn)
        self.trace = Trace(
            context,
            files,
            self.holds,
            spawn=spawn,
            add_event=self.add_event,
            scratch=scratch,
            secrets=self.secrets.named,
        )
        self.videos = Videos(
            context,
            files,
            self.holds,
            spawn=spawn,
            add_event=self.add_event,
            is_hidden=watch.is_hidden,
        )
        self.recorded_code = RecordedCode()
        context.on("close", lambda _: self.end())
        context.debugger.on("pausedstatechanged", self._on_pause)
        self.tabs = Tabs(
            context,
            limit=config.tabs,
            console_level=config.console_level,
            spawn=spawn,
            on_download=self._on_download,
            is_hidden=watch.is_hidden,
            are_foreign=config.is_attached,
            cut=self.secrets.named.cut,
        )
        self.tabs.before_close = self.videos.stop_of
        self.scripts = AgentScripts(self.tabs, origins, spawn=spawn)
        self.mocks.on_answer = self.scripts.record_answer
        # Playwright dismisses dialogs without a listener, and a window may open one before it is a tab.
        context.on("dialog", self._on_dialog)

    @property
    def is_attached(self) -> bool:
        """Whether the tabs are those of a person's browser, which outlive the session."""
        return self.config.is_attached

    async def current(self) -> Tab:
        """Return the current tab. A tab whose page crashed is opened again as it was last saved."""
        if not len(self.tabs) and self._had_pages:
            self.event_lines.append("All pages were closed; this is a new, empty one.")
        tab = await self.tabs.ensure()
        self._had_pages = True
        return await self.tabs.restore(tab, self.origins) if tab.crashed else tab

    async def run_until_modal(
        self, tab: Tab, action: Callable[[], Awaitable[T]], *, answers: bool = False
    ) -> T | None:
        """Run an action until it ends or the page opens a dialog or file chooser; it then continues in the background.

        With `answers`, the action answers the dialog of the page, and runs whatever dialogs other tabs have open.

        Raises:
            BrowserToolFailed: Another tab has a dialog open, which blocks the page.
            Exception: The action raised it while it was waited for.
        """
        if answers:
            tab.clear_modal()
        elif tab.modal.is_set():
            return await action()
        else:
            await self.require_unblocked(tab)
        outcome: list[T] = []
        failure: list[BaseException] = []
        over, over_or_modal = anyio.Event(), anyio.Event()
        scope = anyio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    outcome.append(await action())
            except Exception as error:
                failure.append(error)
            finally:
                over.set()
                over_or_modal.set()

        self.spawn(run)
        self._dialog_events.append(over_or_modal)
        try:
            with tab.signal_modal(over_or_modal):
                await over_or_modal.wait()
            if not (over.is_set() or tab.modal.is_set()):
                await self._wait_unless_blocked(tab, over)
        except BaseException:
            scope.cancel()
            raise
        finally:
            self._dialog_events.remove(over_or_modal)
        if not over.is_set():
            self._background_action = over
        if failure:
            raise failure[0]
        return outcome[0] if outcome else None

    async def _wait_unless_blocked(self, tab: Tab, over: anyio.Event) -> None:
        """Wait until an action is over, the page opens a dialog, or the dialog of another tab proves to block the page."""
        async with anyio.create_task_group() as tasks:

            async def until(event: anyio.Event) -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until, over)
            tasks.start_soon(until, tab.modal)
            if await self.is_blocked(tab):
                tasks.cancel_scope.cancel()

    def _on_dialog(self, dialog: Dialog) -> None:
        if not any(tab.page == dialog.page for tab in self.tabs):
            self.spawn(dismiss_dialog, dialog)
            return
        for event in self._dialog_events:
            event.set()

    def other_dialog(self, tab: Tab) -> str:
        """Return a message about another tab that has a dialog open, or "" if there is none."""
        other = next(
            (entry for entry in self.tabs if entry is not tab and entry.dialog is not None), None
        )
        if other is None:
            return ""
        description = (other.modal_text or "").partition(": can be handled")[0]
        return (
            f"Tab {self.tabs.index(other)} asks something ({description}): select it with browser_tabs and answer with "
            "browser_handle_dialog"
        )

    async def is_blocked(self, tab: Tab) -> bool:
        """Return whether another tab has a dialog open, which blocks every page of its process, and this page is blocked."""
        if tab.modal_text is not None or tab.crashed or not self.other_dialog(tab):
            return False
        with anyio.move_on_after(BLOCKED_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        return scope.cancelled_caught

    async def require_unblocked(self, tab: Tab) -> None:
        """Raise BrowserToolFailed if the dialog of another tab blocks the page."""
        if await self.is_blocked(tab):
            raise BrowserToolFailed("The page does not answer while another tab asks something.")

    async def wait_for_background_action(self, tab: Tab) -> None:
        """Wait until the action left in the background has ended, or the page opens another dialog."""
        action, modal = self._background_action, tab.modal
        if action is None:
            return
        with suppress(RaceLost):
            await race(action.wait, modal.wait)

    async def title(self, tab: Tab) -> str:
        """Return the title of a tab, or "" if its page does not answer."""
        if tab.crashed or tab.closed or tab.dialog is not None:
            return ""
        seconds = BLOCKED_SECONDS if self.other_dialog(tab) else TITLE_SECONDS
        with suppress(Exception), anyio.move_on_after(seconds):
            return await tab.page.title()
        return ""

    async def free_stuck_page(self) -> None:
        """Call stop_script() for the current page if it does not run a script within some seconds.

        Do not call this during a navigation: the browser then runs no scripts, so a healthy page would not answer either.
        """
        tab = self.tabs.current
        if tab is None or tab.modal_text is not None or tab.crashed:
            return
        with anyio.move_on_after(PROBE_SECONDS) as scope, suppress(Exception):
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.stop_script(tab)

    async def stop_script(self, tab: Tab) -> None:
        """Stop the endless script of a page, and close the page if that does not help. The next answer tells which."""
        if self.other_dialog(tab):
            return
        url = tab.page.url
        with anyio.move_on_after(CLOSE_SECONDS) as scope, suppress(Exception):
            await (await self.watch.world(tab.page)).interrupt()
            # This fails at once if the page continues with a pending navigation.
            await tab.page.evaluate("1")
        if scope.cancelled_caught:
            await self.close_hung(tab)
        else:
            self.tabs.event_lines.append(
                f"A script in the page {url} did not end, and was stopped."
            )

    async def close_hung(self, tab: Tab) -> None:
        """Close a page that no longer answers, and report it. A page that another tab's dialog may block is left open."""
        if self.other_dialog(tab):
            return
        url = tab.page.url
        if self.is_attached:
            self.tabs.event_lines.append(f"The page {url} does not answer.")
            return
        with anyio.move_on_after(CLOSE_SECONDS):
            await self.tabs.close(tab)
        self.tabs.event_lines.append(f"The page {url} did not answer any more and was closed.")

    async def collect(self) -> None:
        """Have the pages collect garbage, for at most PROBE_SECONDS."""

        async def ask(tab: Tab) -> None:
            with suppress(Exception):
                await tab.page.request_gc()

        with anyio.move_on_after(PROBE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for tab in self.tabs:
                    if tab.modal_text is None and not tab.crashed:
                        tasks.start_soon(ask, tab)

    async def leave_forbidden_pages(self) -> str:
        """Move tabs away from addresses with schemes that are not allowed. Return the message about it, or an empty text."""
        message = ""
        if self.is_attached:
            return message
        for tab in list(self.tabs):
            url = tab.page.url
            if scheme_allowed(url):
                continue
            message = f"Pages of {url.partition(':')[0]}: may not be opened; the tab was emptied."
            try:
                await tab.page.goto("about:blank", timeout=LEAVE_SECONDS * 1000)
            except Exception:
                await self.tabs.close(tab)
        return message

    async def tab_lines(self) -> list[str]:
        """Return a line for each tab: its number, title and address. The title is empty if the page does not answer."""
        entries = self.tabs.entries
        titles = {
            index: entry.title for index, entry in enumerate(entries) if not isinstance(entry, Tab)
        }

        async def ask(index: int, tab: Tab) -> None:
            titles[index] = await self.title(tab)

        # Concurrently: a dialog blocks every page of its process, so each of them takes its whole timeout.
        async with anyio.create_task_group() as tasks:
            for index, entry in enumerate(entries):
                if isinstance(entry, Tab):
                    tasks.start_soon(ask, index, entry)
        current, mask = self.tabs.current_index, self.secrets.named.mask
        return [
            f"- {index}:{' (current)' if index == current else ''}"
            f" [{cut_line(mask(titles[index]), TITLE)}]({cut_line(mask(entry.url), ADDRESS)})"
            f"{' [crashed]' if _is_crashed(entry) else ''}"
            for index, entry in enumerate(entries)
        ]

    def add_event(self, line: str) -> None:
        """Add a line to the events of the next result."""
        self.event_lines.append(line)

    def forget_events(self) -> None:
        """Forget what the pages reported, and make the refs of earlier snapshots invalid: a person used the pages."""
        self.tabs.take_events()
        for tab in self.tabs:
            tab.forget_events()
        self.refs_are_void = True

    def take_events(self) -> TabEvents:
        """Return the events since the last call, except those inside pages, which Tab.take_events() returns."""
        events, self.event_lines, tab_events = (
            self.event_lines,
            TabEvents(),
            self.tabs.take_events(),
        )
        events += [*tab_events, *self.files.take_events()]
        events.omitted_count += tab_events.omitted_count
        return events

    def busy_reason(self) -> str | None:
        """Return the reason why the session cannot be saved and closed now, or None."""
        if self.downloads_active:
            one = self.downloads_active == 1
            return (
                f"{'a download is' if one else f'{self.downloads_active} downloads are'} under way"
            )
        for tab in self.tabs:
            if tab.modal_text is not None:
                return f"a page waits: {self.secrets.named.mask(tab.modal_text)}"
        return f"{', '.join(sorted(self.holds))} is on" if self.holds else None

    async def wait_for_downloads(
        self, requests: Sequence[Request], total_before: int, *, is_expected: bool
    ) -> None:
        """Wait, at most `settle_seconds`, for downloads that an action began.

        `requests` are the action's requests; `total_before` is the value of `downloads_total` before it. `is_expected`: the
        action began one whose server may not have answered yet.
        """
        if any(request.failure == "net::ERR_ABORTED" for request in requests):
            # A navigation that becomes a download fails first; the download event arrives before the answer to this query.
            with suppress(Exception), anyio.move_on_after(TITLE_SECONDS):
                await self.context.cookies("http://session.invalid")
        with anyio.move_on_after(self.config.settle_seconds):
            while is_expected and self.downloads_total == total_before:
                await self._downloads_change.wait()
            while self.downloads_active and self.downloads_total > total_before:
                await self._downloads_change.wait()

    async def pause_if_stepping(self) -> None:
        """If step() was called, let the debugger hold back the action that follows."""
        if self.stepping:
            # Not in step(): queries that prepare the action would be held back, too.
            self.stepping = False
            await self.context.debugger.request_pause()

    def step(self) -> None:
        """Hold back the next action until it is resumed. The session is not paused meanwhile."""
        self.stepping = True
        self.holds.add(STEPPING)

    def _on_pause(self, _: object = None) -> None:
        details = self.context.debugger.paused_details
        if details is not None:
            if self.tabs.current is not None:
                self.tabs.current.pause(details["title"])
            return
        self.holds.discard(STEPPING)
        for tab in self.tabs:
            if tab.paused_action is not None:
                tab.clear_modal()

    def activities(self) -> list[str]:
        """Return, in words, the activities that end with the context and are not restored.

        They are recordings, mocked routes, the offline state and downloads. After the end of the context, return those that
        were active then.
        """
        if self._final_activities is not None:
            return self._final_activities
        words = [str(self.mocks)] if len(self.mocks) else []
        words += [self.offline.pause_hold.what] if self.offline.on else []
        words += [STEPPING] if STEPPING in self.holds else []
        recordings = (self.trace.pause_hold, self.videos.pause_hold)
        words += [hold.what for hold in recordings if hold.is_active]
        words += ["a recording"] if self.recorded_code.is_on else []
        if self.downloads_active:
            one = self.downloads_active == 1
            words.append(
                f"{'a download that was' if one else f'{self.downloads_active} downloads that were'} under way"
            )
        return words

    def end(self) -> None:
        """End all activities after the context is closed. May be called twice."""
        self._final_activities = self.activities()
        for activity in (self.trace, self.videos, self.mocks, self.offline):
            activity.pause_hold.end()
        self.videos.lose()

    def _on_download(self, tab: Tab, download: Download) -> None:
        self.downloads_active += 1
        self.downloads_total += 1
        self._notify_downloads()
        self.spawn(self._keep_download, tab, download)

    def _notify_downloads(self) -> None:
        self._downloads_change.set()
        self._downloads_change = anyio.Event()

    async def _keep_download(self, tab: Tab, download: Download) -> None:
        # Masked before it becomes a file name, which replaces characters.
        full_name = self.secrets.named.mask_name(download.suggested_filename) or "download"
        name, is_saved = full_name[:200], False
        self.event_lines.append(f"Downloading file {name} ...")
        try:
            try:
                await self.files.keep_download(download, full_name)
                is_saved = True
            except Exception as error:
                self.event_lines.append(f"The download of {name} failed: {reason(error)}")
            await self._close_empty()
        finally:
            self.downloads_active -= 1
            self._notify_downloads()
        if not is_saved:
            await self.files.remove_remains(download)

    async def _close_empty(self) -> None:
        """Close tabs that pages opened for a download and that got no document, as a browser with a window does."""
        for tab in [tab for tab in self.tabs if tab is not self.tabs.current and not tab.page.url]:
            await self.tabs.close(tab)
            self.event_lines.append("A tab that had opened for a download was closed.")


def _is_crashed(entry: Entry) -> bool:
    return isinstance(entry, Tab) and entry.crashed
