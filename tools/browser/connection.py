"""The connection of one session to its browser: runs tool calls, saves snapshots, and reports the loss of the browser."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from ...sessions.concurrency import race
from ...sessions.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionError,
)
from ...sessions.journal.secret_texts import texts_under
from ...sessions.json_codec import JSON
from ...sessions.services import CallContext, PageView, RestoreReport, Snapshot, ToolResult
from . import errors
from .call import BrowserCall
from .devtools.pages import close_context, context_answers
from .errors import BrowserToolFailed, describe_error, describe_exception
from .input.human_control import HumanControl
from .logins.lending import SessionLogins
from .resumption import ContextResumption
from .session.recording.markdown_log import CallRecording
from .session.session import BrowserSession
from .tool import DURING_MODAL, BrowserTool

if TYPE_CHECKING:
    from playwright.async_api import Request, Response

    from .process.browser_process import BrowserProcess
    from .screencast.screencast import Screencast

logger = logging.getLogger("statehold.browser")

LOST_PROCESS: Final = "a part of it ended"
CLOSE_SECONDS: Final = 3.0
PROBE_SECONDS: Final = 2.0
_CLOSED: Final = "The browser session was closed."
WATCH_SECONDS: Final = 3.0
PROGRESS_SECONDS: Final = 1.0
COLLECT_SECONDS: Final = 60.0
"""Seconds without a call after which pages collect garbage; by themselves they do so only when they need memory."""
LATE_SAVE_SECONDS: Final = (5.0, 20.0)
"""Seconds from the last call to another save, and from that save to a second one."""

Saver = Callable[[BrowserSession, bool], Awaitable[Snapshot | None]]
"""Saves a session. The second argument asks for a light save; see BrowserConnection.checkpoint."""


class BrowserConnection:
    """A connection to one context, open until aclose() or until the browser or its driver dies.

    One call runs at a time. Every wait of a call has a limit; a page that never answers is closed, a driver that never
    answers is killed.
    """

    def __init__(
        self,
        session: BrowserSession,
        process: BrowserProcess,
        tools: Mapping[str, BrowserTool],
        *,
        save: Saver,
        logins: SessionLogins | None = None,
    ) -> None:
        self.session = session
        self.logins = logins
        self.lost = anyio.Event()
        self.reason: str | None = None
        self.restore_report = RestoreReport()
        self.unsaved = False
        self._on_unsaved: Callable[[], None] = lambda: None
        self.on_closed: list[Callable[[], None]] = []
        """Callbacks that release resources on close, run in reverse order. If one fails, the others still run."""
        self.progress_seconds = PROGRESS_SECONDS
        """Seconds between progress notifications to a caller that asked for them."""
        self.log: CallRecording | None = None
        """The log of its calls, if the configuration wants one."""
        self.human_control = HumanControl(session)
        self._screencast: Screencast | None = None
        self._process = process
        self._tools = tools
        self._save = save
        self.resumption: ContextResumption | None = None
        """How its context outlives this process; None if it ends with it."""
        self._closed = False
        self._turn = anyio.Lock()
        self._calls_started = anyio.Event()
        """Set while calls run, and for a while after."""
        self._change = anyio.Event()
        """Set by each call that may have changed something."""
        self._call_scope: anyio.CancelScope | None = None
        self._snapshot_scope = anyio.CancelScope()
        self._background_scope = anyio.CancelScope()
        session.spawn(self._run_background)
        # Changes that a page makes by itself, such as a login a moment after the click, have to be saved as well.
        session.context.on("requestfinished", self._on_traffic)
        # A request whose answer the page does not read never finishes, but its cookies are set.
        session.context.on("response", self._on_traffic)
        if logins is not None:
            logins.in_use = lambda: self._turn.locked() or self.human_control.is_on
        process.on_lost.append(self._lose)
        if process.lost.is_set():
            self._lose(process.reason)

    def __repr__(self) -> str:
        return f"<BrowserConnection tabs={len(self.session.tabs)}>"

    def _lose(self, reason: str) -> None:
        if not self._closed and not self.lost.is_set():
            self.reason = reason
            self.lost.set()
            self._end_screencast()
            if self._call_scope is not None:
                self._call_scope.cancel()

    def report_changes(self, on_unsaved: Callable[[], None]) -> None:
        """See SelfChanging in sessions/services.py."""
        self._on_unsaved = on_unsaved

    def outlive(self, resumption: ContextResumption) -> None:
        """Let a later process take the context over. Called before the first call."""
        self.resumption = resumption
        resumption.record(self.session)

    def _on_traffic(self, message: Request | Response) -> None:
        # Requests of workers have no frame.
        with suppress(Exception):
            if self.session.watch.is_hidden(message.frame.page):
                return
        self._mark_unsaved()

    def _mark_unsaved(self) -> None:
        self.unsaved = True
        self._on_unsaved()

    async def _request_late_saves(self) -> None:
        """Request another save some time after the last call: changes that a page makes by a timer raise no event."""
        while True:
            await self._change.wait()
            self._change = anyio.Event()
            for seconds in LATE_SAVE_SECONDS:
                with anyio.move_on_after(seconds):
                    await self._change.wait()
                if self._change.is_set():
                    break
                self._mark_unsaved()

    @property
    def screencast(self) -> Screencast:
        """The live picture of the session's pages; nothing is captured while nobody watches."""
        if self._screencast is None:
            from .screencast.screencast import Screencast

            session = self.session
            self._screencast = Screencast(session.tabs, session.watch, spawn=session.spawn)
        return self._screencast

    def _end_screencast(self) -> None:
        if self._screencast is not None:
            self._screencast.end()

    @property
    def busy(self) -> str | None:
        """The reason why the session cannot be paused, such as a download; None if it can."""
        return self.session.busy_reason()

    @property
    def pids(self) -> list[int]:
        """See ProcessBacked in sessions/services.py. Other sessions may have contexts in the same browser."""
        pid = self._process.pid
        return [] if pid is None or self.lost.is_set() else [pid]

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        """Run one tool, after the calls that came before.

        A failure of the page gives an error result. Other failures raise as the contract of a connection says.
        """
        browser_tool = self._tools.get(tool)
        if browser_tool is None:
            raise InvalidArgument(f"There is no tool {tool[:100]!r}.")
        try:
            parsed_arguments = browser_tool.parse(arguments)
            async with self._turn:
                return await self._call(browser_tool, parsed_arguments, arguments, ctx)
        except SessionError as error:
            if self.log is not None:
                await self.log.add(tool, arguments, self._failure(browser_tool, arguments, error))
            raise

    def _failure(
        self, tool: BrowserTool, arguments: Mapping[str, Any], error: SessionError
    ) -> ToolResult:
        """Return the result that the log has for an error."""
        content = [{"type": "text", "text": f"### Error\n{error.message}"}]
        typed = texts_under(tool.secret, arguments)
        secrets = None if typed is None else [*self.session.secrets.texts, *typed]
        return ToolResult({"content": content, "isError": True}, secrets)

    async def _call(
        self,
        tool: BrowserTool,
        parsed_arguments: Any,
        arguments: Mapping[str, Any],
        ctx: CallContext,
    ) -> ToolResult:
        if self.lost.is_set():
            raise ConnectionLost(f"The browser is gone: {self.reason}.")
        if await self._has_lost_process():
            raise ConnectionLost(f"The browser is gone: {self.reason or LOST_PROCESS}.")
        if not tool.read_only:
            self.unsaved = True
        logins = self.logins
        call = BrowserCall(self.session, ctx, is_action=tool.limit == "action", logins=logins)
        try:
            if logins is not None:
                await self._run_watched(logins.begin_call, tool, call)
            await self._run(tool, call, parsed_arguments)
            if logins is not None:
                await self._run_watched(logins.end_call, tool, call)
            for line in self.session.listener_errors.take():
                call.answer.error(line)
            await self._run_watched(call.finish, tool, call)
            if call.answer.is_error:
                # The error may be the first sign that the browser died.
                await self._browser_answers()
        except Exception as error:
            if self.lost.is_set() or await self._has_lost_process():
                raise self._death_error() from None
            if isinstance(error, errors.Error):
                text = f"The browser failed during the call: {describe_error(error).rstrip('.')}."
                text = self.session.secrets.named.mask(text)
                raise OutcomeUnknown(text) from error
            if isinstance(error, SessionError):
                raise
            logger.exception("%s failed", tool.name)
            call.answer.error(f"{tool.name} failed: {describe_exception(error)}.")
        finally:
            if not tool.read_only:
                self._change.set()
            if self.resumption is not None:
                self.resumption.record(self.session)
        if self.lost.is_set() or await self._has_lost_process():
            raise self._death_error()
        if not call.answer.is_error:
            self.session.recorded_code.add(call.answer.code_lines)
        result = await call.render()
        if (typed := texts_under(tool.secret, arguments)) is not None:
            result.secrets = call.secrets(typed)
        if ctx.wants_facts:
            result.facts = call.step_facts(tool.name)
        if self.log is not None:
            await self.log.add(tool.name, arguments, result, hides_result=call.hides_result)
        return result

    async def _has_lost_process(self) -> bool:
        """Return whether the browser lost a process that it needs; if so, wait for the reason.

        The browser is then about to be ended. Until then Chromium continues with a new process that has no logins.
        """
        if self._process.whole:
            return False
        with anyio.move_on_after(PROBE_SECONDS):
            await self.lost.wait()
        return True

    def _death_error(self) -> OutcomeUnknown:
        return OutcomeUnknown(f"The browser died during the call: {self.reason or LOST_PROCESS}.")

    async def _run(self, tool: BrowserTool, call: BrowserCall, arguments: Any) -> None:
        modal_text = None if (tab := self.session.tabs.current) is None else tab.modal_text
        if modal_text is not None and tool.answers is None and tool.name not in DURING_MODAL:
            call.answer.error(f"{tool.name} has to wait: answer first what the page asks.")
            return
        seconds = tool.seconds(self.session.config)
        try:
            with anyio.fail_after(seconds):
                await self._run_watched(partial(tool.run, call, arguments), tool, call)
        except BrowserToolFailed as error:
            call.answer.error(str(error))
        except TimeoutError:
            hint = self._navigation_hint()
            call.answer.error(f"{tool.name} did not end within {seconds:g} seconds{hint}.")
            if not hint:
                await self.session.free_stuck_page()
        except errors.Error as error:
            await anyio.lowlevel.checkpoint()
            if self.lost.is_set() or not await self._browser_answers():
                raise
            hint = self._navigation_hint()
            if "Timeout" in str(error) and (tab := self.session.tabs.current) is not None:
                hint = hint or tab.traffic.paint_hint
            text = describe_error(error)
            call.answer.error(f"{text.rstrip('.')}{hint}." if hint else text)

    def _navigation_hint(self) -> str:
        tab = self.session.tabs.current
        return "" if tab is None else tab.navigation_hint

    async def _run_watched(
        self, work: Callable[[], Awaitable[None]], tool: BrowserTool, call: BrowserCall
    ) -> None:
        """Run a tool until it ends or the browser no longer answers."""
        with anyio.CancelScope() as scope:
            self._call_scope = scope
            self._calls_started.set()
            try:
                if call.ctx.options.wants_progress:
                    await race(partial(self._report_progress, tool, call), work)
                else:
                    await work()
            finally:
                self._call_scope = None
        if self.lost.is_set():
            raise self._death_error()
        if scope.cancelled_caught:
            raise OutcomeUnknown("The browser did not answer during the call.")

    async def _run_background(self) -> None:
        with self._background_scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._request_late_saves)
                await self._watch_browser()
                tasks.cancel_scope.cancel()

    async def _watch_browser(self) -> None:
        """Check at intervals, while a call runs, that the browser still answers."""
        while not self.lost.is_set():
            with anyio.move_on_after(COLLECT_SECONDS):
                await self._calls_started.wait()
            if not self._calls_started.is_set():
                await self.session.collect()
                await self._calls_started.wait()
            call = self._call_scope
            with anyio.move_on_after(WATCH_SECONDS):
                await self.lost.wait()
            if self._call_scope is None:
                self._calls_started = anyio.Event()
            elif (
                call is self._call_scope and call is not None and not await self._browser_answers()
            ):
                call.cancel()

    async def _report_progress(self, tool: BrowserTool, call: BrowserCall) -> None:
        seconds = 0.0
        while True:
            await anyio.sleep(self.progress_seconds)
            seconds += self.progress_seconds
            text = f"{tool.title}: {seconds:g} seconds so far"
            with suppress(Exception):
                await call.ctx.progress(seconds, call.expected_seconds, text)

    async def _browser_answers(self) -> bool:
        """Return whether browser and driver answer; one that does not is killed.

        The death of the driver raises no event and may be noticed here first.
        """
        if await context_answers(self.session.context, PROBE_SECONDS):
            return True
        if await self._process.check():
            return True
        with anyio.move_on_after(PROBE_SECONDS):
            await self.lost.wait()
        return False

    async def request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
        """Answer requests for resources with the files of the session.

        Raises:
            InvalidArgument: There is no such resource, or no such method.
        """
        return await self.session.files.answer(
            method, params, mask=self.session.secrets.named.mask_file
        )

    async def view(self, *, most_bytes: int) -> PageView:
        """See Viewable in sessions/services.py."""
        from .screencast.page_view import view_pages

        return await view_pages(self.session, most_bytes=most_bytes)

    async def begin_human_control(self) -> None:
        """See Drivable in sessions/services.py."""
        async with self._turn:
            if self.logins is not None:
                await self.logins.begin_call()
            await self.human_control.begin()
            if self.logins is not None:
                self.logins.begin_anew()
            if self.resumption is not None:
                self.resumption.record(self.session)

    async def end_human_control(self) -> list[str]:
        """See Drivable in sessions/services.py."""
        async with self._turn:
            changes = await self.human_control.end()
            if self.resumption is not None:
                self.resumption.record(self.session)
        if changes:
            self._mark_unsaved()
        return changes

    async def snapshot(self) -> Snapshot | None:
        """Return a snapshot of the session.

        Raises:
            ConnectionLost: The browser is gone or does not answer.
            ServiceUnavailable: The browser failed while its state was read.
        """
        return await self._take_snapshot(light=False)

    async def checkpoint(self) -> Snapshot | None:
        """Return a snapshot that reads open pages only; the storage of other origins is as it was last read.

        Raises as snapshot() does.
        """
        if any(tab.modal_text is not None for tab in self.session.tabs):
            # A page with a dialog does not answer, and the call that closes the dialog must not wait for the checkpoint.
            return None
        return await self._take_snapshot(light=True)

    async def _take_snapshot(self, *, light: bool) -> Snapshot | None:
        if self.session.is_attached:
            return None
        if self._closed:
            raise ConnectionLost(_CLOSED)
        # Cleared first: the snapshot may lack changes that are made while it is taken.
        self.unsaved = False
        try:
            unread_before = self.session.origins.unread_count
            snapshot: Snapshot | None = None
            with anyio.CancelScope() as self._snapshot_scope:
                await self._process.guard()
                snapshot = await self._save(self.session, light)
            if self._snapshot_scope.cancelled_caught:
                raise ConnectionLost(_CLOSED)
            # Ask for another save only while the backlog changes; an origin that can never be read would ask for ever.
            if light and self.session.origins.unread_count not in (0, unread_before):
                self._mark_unsaved()
            if self.lost.is_set() or not self._process.whole:
                # The state may have been gone before the last of it was read.
                raise ConnectionLost(f"The browser is gone: {self.reason or LOST_PROCESS}.")
            return snapshot
        except BaseException as error:
            self.unsaved = True
            if isinstance(error, ConnectionLost) and not self._closed:
                self._process.check_soon()
            if not isinstance(error, errors.Error):
                raise
            if self.lost.is_set():
                raise ConnectionLost(f"The browser is gone: {self.reason}.") from error
            reason = describe_error(error).rstrip(".")
            text = f"The browser could not be saved: {reason}."
            raise ServiceUnavailable(text) from error

    async def aclose(self) -> None:
        """Close the context, or leave it as it is, within CLOSE_SECONDS. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._end_screencast()
        self._background_scope.cancel()
        with suppress(ValueError):
            self._process.on_lost.remove(self._lose)
        is_left = self.resumption is not None and self.resumption.is_left
        if self.logins is not None:
            await self.logins.end(is_lost=self.lost.is_set(), is_left=is_left)
        try:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
                # The context of a person's browser stays; the process disconnects from it.
                if not (self.session.is_attached or is_left):
                    self._snapshot_scope.cancel()
                    with suppress(Exception):
                        await close_context(self.session.context)
            if scope.cancelled_caught and not self._process.lost.is_set():
                logger.warning("a context did not close within %g seconds", CLOSE_SECONDS)
                self._process.check_soon()
        finally:
            with ExitStack() as stack:
                if self.resumption is not None:
                    stack.callback(self.resumption.end)
                for release in self.on_closed:
                    stack.callback(release)
