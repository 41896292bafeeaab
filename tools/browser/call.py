"""One call of a browser tool: the services that the tool uses, and the common parts of every answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread

from ...sessions.json_codec import JSON, well_formed
from ...sessions.one_line import cut_line
from ...sessions.services import CallContext, ToolResult
from . import errors as browser_errors
from .answers.answer import ADDRESS, TITLE, PageAnswer
from .answers.difference import difference
from .answers.page_events import News, summarize, summarize_news
from .answers.page_snapshot import (
    ERROR_TOKENS,
    UNCHANGED,
    finish_snapshot,
    fit,
    read_snapshot,
    shows_difference,
)
from .answers.step_facts import StepFacts
from .devtools.world import WorldError
from .egress.network_policy import scheme_allowed
from .errors import BrowserToolFailed, was_action_done
from .logins.sites import NO_SITES
from .secrets.spellings import MASK, mask_logins
from .session.early_snapshot import EarlySnapshot
from .session.settle import settle, unwatch_activity, watch_activity
from .session.tab import Tab, TabEvents
from .targets import ElementNotFound, Targets, limit_answer

if TYPE_CHECKING:
    from playwright.async_api import Locator

    from .logins.lending import SessionLogins
    from .session.session import BrowserSession

T = TypeVar("T")

FOREIGN_PAGE: Final = (
    "The current tab shows a page of the browser itself or a file, which tools do not use: select or open "
    "another tab."
)
CONSOLE_TOOL: Final = "browser_console_messages"
NETWORK_TOOL: Final = "browser_network_requests"
PAGE_FILE: Final = "page.yml"
"""The file of a page of which the answer has an outline; the next one replaces it."""
NOTE_SECONDS: Final = 1.0
DIALOG_SECONDS: Final = 1.0
LATE_SECONDS: Final = 0.5
FRESH_SECONDS: Final = 0.01
"""Seconds for which an early snapshot of a page counts as current."""


class BrowserCall:
    """A call under way. It lives until the tool returns."""

    def __init__(
        self,
        session: BrowserSession,
        ctx: CallContext,
        *,
        is_action: bool = False,
        logins: SessionLogins | None = None,
    ) -> None:
        """`is_action`: what act() runs ends within `action_seconds`, also if the browser confirms no input.

        `logins`: those of the session, if the configuration has some to lend.
        """
        self.session = session
        self.logins = logins
        self.login_sites = NO_SITES if logins is None else logins.sites
        """The sites of logins, whose cookies and storage no tool shows or changes."""
        self._is_action = is_action
        self.config = session.config
        self.ctx = ctx
        self.answer = PageAnswer(self.config.codegen, secrets=session.secrets.named)
        tab = self._tab = session.tabs.current
        self._before = tab and tab.description_state()
        self._title: tuple[Tab | None, str] = (None, "")
        self._early_snapshot: EarlySnapshot | None = None
        """The snapshot taken while the last action settled; None if the page may have changed since."""
        self.shows_page = False
        """Whether the answer describes the current page."""
        self.shows_snapshot = False
        """Whether the answer has a snapshot, where the configuration wants one after an action."""
        self.element_code = ""
        """The element of the last locate(), as a Playwright expression in Python."""
        self.acted_ref: str | None = None
        """The ref of the element of the last locate(), if it was located by one."""
        self.expected_seconds: float | None = None
        """The seconds that the call will take, where known."""
        self.facts = StepFacts()
        self._targets = Targets(session, wants_facts=ctx.wants_facts)
        self._plain_texts: set[str] = set()
        """Texts that went into fields that are not secret."""
        self._secret_texts: set[str] = set()
        self._result_secrets: list[str] = []

    async def tab(self) -> Tab:
        """Return the current tab. There is always one; a crashed tab is replaced, and the answer says so.

        Raises:
            BrowserToolFailed: The tab was at an address with a scheme that is not allowed.
        """
        tab = await self.session.current()
        if not scheme_allowed(tab.page.url):
            if self.session.is_attached:
                raise BrowserToolFailed(FOREIGN_PAGE)
            raise BrowserToolFailed(await self.session.leave_forbidden_pages())
        return tab

    async def ready_tab(self) -> Tab:
        """Wait for a pending navigation of the current tab, then return the tab.

        A page cannot be queried before the server of a pending navigation has answered.

        Raises:
            BrowserToolFailed: The navigation takes longer than an action may, or as tab() says.
        """
        tab = await self.tab()
        with anyio.move_on_after(self.config.action_seconds):
            while tab.pending_url and not (tab.closed or tab.modal.is_set()):
                await tab.wait_for_change()
        if tab.navigation_hint and not (tab.closed or tab.modal.is_set()):
            raise BrowserToolFailed(f"The page is on its way to another one{tab.navigation_hint}.")
        return tab

    async def locate(self, target: str, element: str | None = None) -> Locator:
        """Return the one element that a ref of the last snapshot, a selector, or a locator as in code stands for.

        Raises:
            BrowserToolFailed: No element matches, or more than one does. A ref that is no longer valid is refused at once.
        """
        tab = await self.ready_tab()
        await self.session.require_unblocked(tab)
        name = f" ({element})" if element else ""
        try:
            try:
                found = await self._targets.find(tab, target, name)
            except BrowserToolFailed:
                # The query may be the first to tell of a crash: ask the page that takes its place.
                if not tab.crashed:
                    raise
                found = await self._targets.find(await self.ready_tab(), target, name)
        except ElementNotFound:
            self.shows_snapshot = True
            raise
        self.element_code = found.code
        self.acted_ref = found.ref or self.acted_ref
        return found.locator

    @property
    def timeout(self) -> float:
        """The limit of one action in milliseconds, as Playwright takes it."""
        return self.config.action_seconds * 1000

    async def act(
        self,
        action: Callable[[], Awaitable[T]],
        *,
        quiet: bool = True,
        snapshot: bool = True,
        edits: bool = True,
        answers: bool = False,
        at_once: bool = False,
    ) -> T | None:
        """Run an action in the current tab and wait for its effects.

        The answer then describes the page, with a snapshot if the configuration wants one. Without `snapshot` the answer
        describes the page only if it changed. With `edits`, a script in the page first starts to record edits, so that they
        can be saved. `answers`: the action answers the dialog of the page. With `at_once` the action also runs
        while a navigation is pending.
        Return None if a dialog or a file chooser keeps the action from ending; the action continues after the answer.
        """
        tab = await (self.tab() if answers or at_once else self.ready_tab())
        self.shows_page = self.shows_page or snapshot
        self.shows_snapshot = self.shows_snapshot or snapshot
        self._early_snapshot = None
        if edits and not tab.modal.is_set():
            await self._watch_edits(tab)
        if self.session.clipboard is not None:
            self.session.clipboard.record_action()
        requests, downloads_before, result = (
            tab.record_requests(),
            self.session.downloads_total,
            None,
        )
        async with anyio.create_task_group() as tasks:
            if self._targets.has_variants:
                tasks.start_soon(self._targets.try_exact, tab)
            if quiet and not at_once and self.config.settle == "balanced":
                await watch_activity(tab, watch=self.session.watch)
        await self.session.pause_if_stepping()
        try:
            # Playwright's own limit, which tells the reason, comes first, and so does a limit of the action itself.
            late = LATE_SECONDS if self._is_action else math.inf
            with limit_answer(tab, self.config.action_seconds, late=late):
                result = await self.session.run_until_modal(tab, action, answers=answers)
        except (browser_errors.Error, BrowserToolFailed) as error:
            await unwatch_activity(tab, watch=self.session.watch)
            if not was_action_done(error):
                raise
            if tab.closed:
                return None
            if pending_url := tab.pending_url:
                # The page does not respond until the server answers; the action has already waited for it.
                tab.event_lines.append(f"It was done, but {pending_url} did not answer yet.")
            else:
                await self.session.free_stuck_page()
            if pending_url or tab.closed:
                self.shows_snapshot = False
                return None
        settled_addresses = self.session.settled_addresses
        early_snapshot = (
            EarlySnapshot(tab, settled_addresses, boxes=self.config.snapshot_boxes)
            if snapshot and self.config.snapshot != "none"
            else None
        )
        is_unchanged = await settle(
            tab,
            requests,
            watch=self.session.watch,
            mode=self.config.settle,
            seconds=self.config.settle_seconds,
            quiet=quiet,
            early_snapshot=early_snapshot,
        )
        if early_snapshot is not None:
            settled_addresses.note(tab.page.url, is_unchanged=is_unchanged)
        if tab.copied_texts is not None and self.session.clipboard is not None:
            self.session.clipboard.copy(tab.copied_texts)
        tab.copied_texts = None
        settled_at = anyio.current_time()
        if not tab.modal.is_set():
            seconds = self.config.settle_seconds
            if self.session.other_dialog(tab):
                # A window that opens a dialog at once never finishes loading its document.
                seconds = min(seconds, DIALOG_SECONDS)
            await self.session.tabs.wait_for_windows(seconds=seconds)
        await self.session.wait_for_downloads(
            requests, downloads_before, is_expected=tab.traffic.expects_download
        )
        if early_snapshot is not None and is_unchanged and early_snapshot.is_whole:
            # The page may have changed during the later waits.
            self._early_snapshot = (
                early_snapshot if anyio.current_time() - settled_at < FRESH_SECONDS else None
            )
        return result

    def record_typed(self, text: str, *, is_secret: bool) -> None:
        """Record a text that goes into a field; the text of a secret field is hidden from then on."""
        if is_secret:
            self._secret_texts.add(text)
            self.session.secrets.add(text)
        else:
            self._plain_texts.add(text)

    def mask_secret(self, text: str) -> str:
        """Return a typed text as the code in the answer shows it: secret texts are masked."""
        return MASK if text in self._secret_texts else text

    @property
    def hides_result(self) -> bool:
        """Whether the result is a list of secrets."""
        return bool(self._result_secrets)

    def hide_from_journal(self, texts: Iterable[str]) -> None:
        """Keep these texts, which are part of the result, out of the journal."""
        self._result_secrets += texts

    def secrets(self, typed: Iterable[str]) -> list[str]:
        """Return the texts that the journal must not record, among them each `typed` text whose field was not examined."""
        secrets = self.session.secrets
        typed_secrets = [
            text
            for text in typed
            if (text not in self._plain_texts or text in self._secret_texts)
            and not secrets.named.consists_of_names(text)
        ]
        return [*secrets.texts, *typed_secrets, *self._result_secrets]

    async def _watch_edits(self, tab: Tab) -> None:
        """Have a script in the tab's documents note edits, so that they can be saved. Does nothing the second time."""
        with anyio.move_on_after(NOTE_SECONDS), suppress(browser_errors.Error, WorldError):
            await self.session.watch.world(tab.page)

    async def add_text(self, text: str, filename: str | None, *, label: str) -> None:
        """Add a text without logins in addresses to the result, or write it to a file of the session if a name is given."""
        if filename is None:
            self.answer.result(text)
        else:
            await self.add_file(filename, well_formed(mask_logins(text)).encode(), label=label)

    async def add_file(self, name: str, data: bytes, *, label: str, is_chosen: bool = True) -> None:
        """Write a file of the session and link it in the result. Named secrets are masked in texts.

        A name that the caller chose is used as it is, and replaces a file that has it. Another gets a number if it is taken.

        Raises:
            BrowserToolFailed: There is no room for it.
        """
        files, named = self.session.files, self.session.secrets.named
        name, data = named.mask_name(name), named.mask_file(data)
        try:
            path = await files.write(name, data)
        except OSError as error:
            reason = error.strerror or error
            raise BrowserToolFailed(f"{name[:100]} was not written: {reason}.") from None
        own_name, is_replaced = path.name, False
        if is_chosen:
            own_name, is_replaced = await files.rename(path, name)
        await self.link_file(own_name, len(data), label=label)
        if is_replaced and name != PAGE_FILE:
            self.answer.result("It replaced the file of that name.")

    async def link_file(self, name: str, size: int, *, label: str) -> None:
        """Link a file of the session in the result."""
        files = self.session.files
        note = await files.deliver(name)
        self.answer.result(f"- [{label}]({files.address(name)}){note}")
        self.answer.file(files.uri(name), name, await files.mime(name), size)

    async def finish(self) -> None:
        """Add the page, its snapshot and the events to the answer, as far as they are wanted and available."""
        if refusal := await self.session.leave_forbidden_pages():
            self.answer.withhold(refusal)
            self.shows_snapshot = False
        tab = self.session.tabs.current
        if tab is not None and not scheme_allowed(tab.page.url):
            self.shows_snapshot = False
        if tab is self._tab and tab and tab.description_state() != self._before:
            self.shows_page = True
        if tab is not None and tab.modal_text is not None:
            self.answer.modal([tab.modal_text])
        elif tab is not None and self.shows_snapshot and not await self.session.is_blocked(tab):
            await self._add_page_snapshot(tab)
        if tab is not None and (dialog_text := self.session.other_dialog(tab)):
            self.answer.modal([dialog_text])
        if self.shows_page or self.answer.is_error:
            if len(self.session.tabs) > 1:
                self.answer.tabs(await self.session.tab_lines())
            if tab is not None:
                await self._add_page(tab)
        self.answer.events(self._take_events(tab))
        for name, size in self.session.files.take_downloads():
            mime = await self.session.files.mime(name)
            self.answer.file(self.session.files.uri(name), name, mime, size)
            self.facts.files.append(name)

    async def render(self) -> ToolResult:
        """Return the result. In a thread where the masks of an earlier process take long."""
        render = self.answer.render
        is_slow = self.session.secrets.named.typed.is_slow
        return await anyio.to_thread.run_sync(render) if is_slow else render()

    def step_facts(self, tool: str) -> JSON:
        """Return the facts of the step, once the answer is finished."""
        tab, facts = self.session.tabs.current, self.facts
        facts.targets = self._targets.steps
        if tab is not None and scheme_allowed(tab.page.url):
            titled_tab, title = self._title
            facts.url, facts.title = tab.page.url, title if titled_tab is tab else ""
            facts.asks = "" if tab.dialog is None else tab.dialog.message
            facts.asks = facts.asks or ("File chooser" if tab.chooser is not None else "")
        return facts.json(tool, mask=self.session.secrets.named.mask)

    def _take_events(self, tab: Tab | None) -> list[str]:
        events = [self.session.take_events(), tab.take_events() if tab else TabEvents()]
        lines = summarize(chain(*events), omitted=sum(each.omitted_count for each in events))
        mask = self.session.secrets.named.mask
        messages = tab.take_messages() if tab else []
        console = [
            News(list(map(mask, each)), each.omitted_count, CONSOLE_TOOL) for each in messages
        ]
        requests = self.session.host_errors.take_events()
        network = News(list(map(mask, requests)), requests.omitted_count, NETWORK_TOOL)
        # First, since one line about a host explains many messages.
        return [*lines, *summarize_news([network, *console])]

    async def _add_page_snapshot(self, tab: Tab) -> None:
        early_snapshot = self._early_snapshot
        if early_snapshot is None or early_snapshot.tab is not tab or self.answer.is_error:
            await self.read_with_title(tab, partial(self._add_snapshot, tab))
            return
        self._title = (tab, str(early_snapshot.title))
        await self._add_snapshot(tab, early_snapshot.snapshot)

    async def read_with_title(self, tab: Tab, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` on a page while the title that the answer needs is read: one round trip instead of two."""
        result: list[T] = []
        failure: Exception | None = None

        async def ask() -> None:
            self._title = (tab, await self.session.title(tab))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            try:
                result.append(await work())
            except Exception as error:
                # Raised below: a task group would wrap it.
                failure = error
        if failure is not None:
            raise failure
        return result[0]

    async def _add_page(self, tab: Tab) -> None:
        mask = self.session.secrets.named.mask
        lines = [f"- Page URL: {cut_line(mask(tab.page.url), ADDRESS)}"]
        titled_tab, title = self._title
        if titled_tab is not tab:
            title = await self.session.title(tab)
            self._title = (tab, title)
        if title:
            lines.append(f"- Page Title: {cut_line(mask(title), TITLE)}")
        if problem := tab.failed_navigation(self.session.host_errors.explain):
            lines.append(f"- {problem}")
        errors, warnings = tab.count_problems()
        if errors or warnings:
            lines.append(f"- Console: {errors} errors, {warnings} warnings")
        self.answer.page(lines)

    async def _add_snapshot(self, tab: Tab, text: str | None = None) -> None:
        mode, tokens, wanted = (
            self.config.snapshot,
            self.config.snapshot_tokens,
            self.ctx.options.result_tokens,
        )
        if mode == "none" or wanted == 0:
            return
        tokens = tokens if wanted is None else min(tokens, wanted)
        before = tab.shown_snapshot
        try:
            snapshot = await self.snapshot_of(tab, text=text)
        except BrowserToolFailed as error:
            self.answer.events([str(error)])
            return
        tab.shown_snapshot = snapshot
        self.session.refs_are_void = False
        if self.answer.is_error:
            self.answer.snapshot(fit(snapshot, min(tokens, ERROR_TOKENS), self.acted_ref))
            return
        is_compared = mode != "full" or self.ctx.wants_facts
        diff = None if before is None or not is_compared else difference(before, snapshot)
        if self.ctx.wants_facts:
            self.facts.record_change(before, snapshot, diff)
        if diff is not None and shows_difference(diff, snapshot, mode, tokens):
            self.answer.snapshot(diff or UNCHANGED, language="diff")
        else:
            shown = snapshot
            if mode == "auto":
                shown = fit(snapshot, tokens, self.acted_ref, is_overview=not self.element_code)
            self.answer.snapshot(shown)
            if shown != snapshot and wanted is not None:
                await self.add_file(PAGE_FILE, snapshot.encode(), label="The whole page")

    async def snapshot_of(
        self, tab: Tab, locator: Locator | None = None, *, text: str | None = None, **options: Any
    ) -> str:
        """Return the accessibility snapshot of a page or an element, with refs for the other tools.

        `text` is the snapshot as Playwright took it, if it is known already.

        Raises:
            BrowserToolFailed: The page does not answer.
        """
        is_whole = locator is None and not options
        if self.config.snapshot_boxes:
            options.setdefault("boxes", True)
        if text is None:
            snapshot = await read_snapshot(self.session, tab, locator, **options)
        else:
            snapshot = finish_snapshot(self.session, tab, text)
        if is_whole:
            tab.last_snapshot = snapshot
        return snapshot
