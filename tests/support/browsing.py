"""Driving the browser of one session in tests: calls by name, and their texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import BrowserContext, Page

from statehold.sessions.services import SessionView, Snapshot, ToolResult
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.connection import BrowserConnection
from statehold.tools.browser.logins.leases import LoginLeases
from statehold.tools.browser.process.browser_process import BrowserProcess
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session.tab import Tab
from statehold.tools.processes.keeper import KeeperClient
from statehold.tools.processes.ledger import Ledger
from statehold.tools.upstream.recipe import InternalContext

_numbers = itertools.count(1)


@dataclass
class Browse:
    """The browser of one session."""

    connection: BrowserConnection
    service: BrowserService
    view: SessionView
    ctx: Any = field(default_factory=InternalContext)

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        name = tool if tool.startswith(("browser_", "login_")) else f"browser_{tool}"
        return await self.connection.call(name, arguments, self.ctx)

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that has to succeed and return the text of its result."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def error(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that has to fail and return the text of its result."""
        result = await self.call(tool, **arguments)
        assert result.is_error, text_of(result)
        return text_of(result)

    @property
    def tab(self) -> Tab:
        """The current tab."""
        tab = self.connection.session.tabs.current
        assert tab is not None
        return tab

    @property
    def page(self) -> Page:
        """The page of the current tab."""
        return self.tab.page

    async def value(self, function: str) -> Any:
        """Return the result of a script as a Python value."""
        return await self.page.evaluate(function)

    async def saved(self, *, light: bool = False) -> Snapshot:
        """Save the session, only in passing when `light`."""
        connection = self.connection
        snapshot = await (connection.checkpoint() if light else connection.snapshot())
        assert snapshot is not None
        return snapshot

    def next_view(self) -> SessionView:
        """The session as it is when it is opened the next time."""
        return replace(self.view, generation=self.view.generation + 1)

    async def ref(self, name: str) -> str:
        """Return the ref of the element that the snapshot shows with this name or text."""
        return ref_of(await self.text("snapshot"), name)


def process_of(browse: Browse) -> BrowserProcess:
    return browse.connection._process  # pyright: ignore[reportPrivateUsage]


def pid_of(process: BrowserProcess, which: str) -> int:
    """Return the pid of a browser, or of its driver."""
    pid = process.pid if which == "browser" else process.driver.pid
    assert pid is not None
    return pid


def text_of(result: ToolResult) -> str:
    return "\n".join(b["text"] for b in result.payload["content"] if b["type"] == "text")


def ref_of(snapshot: str, name: str) -> str:
    for line in snapshot.splitlines():
        match = re.search(r"\[ref=(\w+)\]", line)
        if match and name in line:
            return match[1]
    raise AssertionError(f"no {name!r} in\n{snapshot}")


def section(text: str, name: str) -> str:
    """Return one section of a result."""
    match = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^### |\Z)", text, re.M | re.S)
    assert match is not None, f"no section {name!r} in\n{text}"
    return match[1].strip()


def new_view(owner: str = "owner", *, generation: int = 1, id: str | None = None) -> SessionView:
    number = next(_numbers)
    return SessionView(id or f"sh_test{number}", None, "default", owner, generation)


@asynccontextmanager
async def running(
    data: Path, shell: str | None, *, logins: Any = None, **settings: Any
) -> AsyncGenerator[BrowserService]:
    """A browser service; private addresses may be reached, since all test sites have one."""
    config = BrowserConfig.model_validate({"executable": shell, "private": True, **settings})
    async with BrowserService("browser", config, data=data, logins=logins) as service:
        yield service


@asynccontextmanager
async def running_in_hosts(
    data: Path,
    shell: str,
    linger_seconds: float = 1.0,
    *,
    logins: LoginLeases | None = None,
    **settings: Any,
) -> AsyncGenerator[BrowserService]:
    """A browser service with a keeper, so that its browsers run in hosts as they do in a server."""
    config = BrowserConfig.model_validate({"executable": shell, "private": True, **settings})
    ledger = Ledger(data, watchdog=False, keeper=KeeperClient(data, linger_seconds))
    try:
        async with BrowserService(
            "browser", config, data=data, ledger=ledger, logins=logins
        ) as service:
            yield service
    finally:
        await ledger.aclose()


@asynccontextmanager
async def opened(
    service: BrowserService, view: SessionView | None = None, snapshot: Snapshot | None = None
) -> AsyncGenerator[Browse]:
    view = view or new_view()
    connection = await service.open(view, snapshot)
    try:
        yield Browse(connection, service, view)
    finally:
        await connection.aclose()


async def saved(service: BrowserService, url: str) -> tuple[Snapshot, BrowserProcess]:
    """Return the snapshot of a session on a page, and its process, which is unused now."""
    async with opened(service) as browse:
        await browse.text("navigate", url=url)
        return await browse.saved(), process_of(browse)


@asynccontextmanager
async def again(browse: Browse, *, light: bool = False) -> AsyncGenerator[Browse]:
    """The same session after it was saved and closed."""
    saved = await browse.saved(light=light)
    await browse.connection.aclose()
    async with opened(browse.service, browse.next_view(), saved) as resumed:
        yield resumed


async def until_pages_closed(context: BrowserContext, count: int) -> None:
    """Wait until a context has closed all pages but so many."""
    with anyio.fail_after(10):
        while len(context.pages) > count:
            closed = anyio.Event()
            for page in context.pages:
                page.once("close", lambda _, closed=closed: closed.set())
            await closed.wait()


def lost(browse: Browse) -> str:
    """Return the losses that were reported when the session was opened."""
    return browse.connection.restore_report.lost


__all__ = [
    "Browse",
    "again",
    "lost",
    "new_view",
    "opened",
    "pid_of",
    "process_of",
    "ref_of",
    "running",
    "running_in_hosts",
    "saved",
    "section",
    "text_of",
    "until_pages_closed",
]
