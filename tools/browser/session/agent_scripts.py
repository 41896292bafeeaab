"""The pages of a session in which scripts of its agent may run: they could read what a person types there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio

from .. import errors
from ..devtools.world import origin_of

if TYPE_CHECKING:
    from playwright.async_api import Request, Worker

    from ..snapshot.saved_storage import OriginStorage
    from .tab import Tab
    from .tab_list import Tabs

EMPTY: Final = "about:blank"
WRITTEN: Final = "blob:"
"""The scheme of documents whose text a script holds."""
_STAYS: Final = "A page did not give way. Close its tab, and open it again."
_WORKERS_STAY: Final = "The service workers of the pages stay. Try again."
CLEAR_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 5.0
"""Seconds that the pages get to give way to empty ones."""

ScriptState = Literal["none", "pages", "code"]


class AgentScripts:
    """Marks the pages that the agent scripted, or to which a mocked route answered. It lives as long as the session.

    A script reaches the pages that its page opened, and the one that opened it. So a new document ends the mark of its page
    only if no other page has one, and if no script made the document itself (`blob:`). A service worker may put scripts into
    each later document, so then only renew() ends it.
    """

    def __init__(self, tabs: Tabs, origins: OriginStorage, *, spawn: Callable[..., None]) -> None:
        self._tabs = tabs
        self._origins = origins
        self._worker_origins: set[str] = set()
        """The origins whose service workers ran."""
        self._has_scripted = False
        """Whether the agent scripted a page since the last renew()."""
        origins.watch.context.on("serviceworker", self._record_worker)
        self._spawn = spawn
        self._marked: set[Tab] = set()
        self._awaiting: set[Tab] = set()
        """The tabs to whose next document a mocked route answers."""
        self.has_code = False
        """Whether the agent ran code of Playwright, which may follow all pages of the context until its end."""
        tabs.on_tab = self._follow
        for tab in tabs:
            self._follow(tab)

    @property
    def state(self) -> ScriptState:
        """`pages` if renew() ends the scripts, `code` if no load of a page ends them."""
        if self.has_code:
            return "code"
        self._marked = {tab for tab in self._marked if not tab.closed}
        return "pages" if self._marked else "none"

    def resume(self, state: str) -> None:
        """Take over the state of a server that ended, whose pages are open still."""
        self.has_code = state == "code"
        if state != "none":
            self.record_script()

    def record_script(self) -> None:
        """Record that a script of the agent runs in a page."""
        self._has_scripted = True
        self._marked.update(self._tabs)

    def record_code(self) -> None:
        """Record that code of the agent runs with Playwright's page."""
        self.has_code = True
        self.record_script()

    def record_answer(self, request: Request) -> None:
        """Record that a mocked route answers a request of a page, perhaps with a script."""
        self.record_script()
        # The request of a new window has no frame yet.
        with suppress(errors.Error):
            frame = request.frame
            if frame.parent_frame is None and request.is_navigation_request():
                self._awaiting.update(tab for tab in self._tabs if tab.page == frame.page)

    async def renew(self, *, milliseconds: float | None) -> str:
        """Load the marked pages anew, without service workers. Return why that is not possible, or "".

        `milliseconds` is the time for each to load in the background; None leaves them empty.

        All of them are empty for a moment, so that none scripts another one that was loaded already.
        """
        tabs = [tab for tab in self._tabs if tab in self._marked and not tab.crashed]
        addresses = [tab.url for tab in tabs]
        left: list[Tab] = []

        async def leave(tab: Tab) -> None:
            with suppress(Exception):
                await tab.page.goto(EMPTY, timeout=LEAVE_SECONDS * 1000)
                left.append(tab)

        async with anyio.create_task_group() as tasks:
            for tab in tabs:
                tasks.start_soon(leave, tab)
        refusal = "" if len(left) == len(tabs) else _STAYS
        try:
            with anyio.fail_after(CLEAR_SECONDS):
                await self._origins.clear_workers(self._worker_origins)
            self._worker_origins.clear()
        except Exception:
            refusal = refusal or _WORKERS_STAY
        if not refusal:
            self._has_scripted = False
            self._marked.clear()
            self._awaiting.clear()
        for tab, address in zip(tabs, addresses, strict=True):
            if milliseconds is not None and tab in left and address != EMPTY:
                go = partial(tab.page.goto, address, wait_until="commit", timeout=milliseconds)
                self._spawn(_ignore_failure, go)
        return refusal

    def _follow(self, tab: Tab) -> None:
        tab.on_document = partial(self._begin_document, tab)
        if self._marked:
            self._marked.add(tab)

    def _record_worker(self, worker: Worker) -> None:
        if origin := origin_of(worker.url):
            self._worker_origins.add(origin)
        if self._has_scripted:
            # The script that registered it may be gone, and the worker may have answered the requests of all pages.
            self.record_script()

    def _begin_document(self, tab: Tab) -> None:
        if tab in self._awaiting:
            self._awaiting.discard(tab)
        elif not (
            self._worker_origins
            or tab.url.startswith(WRITTEN)
            or any(not other.closed for other in self._marked - {tab})
        ):
            self._marked.clear()


async def _ignore_failure(navigate: Callable[[], Awaitable[object]]) -> None:
    """Navigate. The person sees whether the page arrives."""
    with suppress(Exception):
        await navigate()
