"""`statehold sessions open`: opens the browser of a session in a window, for a person, until the window is closed."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ...server.config.model import Config
from ...server.exit_codes import BUSY, OK
from ...server.operate.handler import OperateVerb
from ...server.operate.operator_tools import Screenshot
from ...server.operate.requests import OperatorRequest
from ...server.operate.screenshot import picture_to_json
from ...server.printing import complain
from ...server.sockets.local_socket import local_socket
from ...sessions.concurrency import RaceLost, race
from ...sessions.errors import SessionBusy, SessionError, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.node import NODES
from ...sessions.records import SessionRecord
from ...sessions.store.sql import SQLStore
from ...tools.browser.config import BrowserConfig
from ...tools.browser.picture import take_picture
from ...tools.browser.process.choice import NoBrowser, find_browser
from ...tools.browser.process.executables import Machine
from ...tools.browser.snapshot.encryption import Encryption
from ...tools.browser.window import Window
from ..command_line import CommandLine
from ..errors import CommandError
from ..output import say, say_json
from .held_browser import HeldBrowser, hold_browser
from .screenshot import refuse_without_browser
from .tool_calls import ToolCaller

WINDOW_NODE = "a window that a person works in"
HOLDER = "a person in a window"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def open_window(
    config: Config,
    store: SQLStore,
    record: SessionRecord,
    arguments: CommandLine,
    *,
    url: str | None = None,
) -> int:
    """Open a session in a window, at an address if one is given, and wait until it is closed.

    Meanwhile this process holds the session.

    Raises:
        CommandError: it cannot be opened, and is unchanged.
    """
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)
    async with ToolCaller(config, store) as caller:
        name, browser = await _browser_of(caller, record)
        browser = with_window(browser)
        holder = None if record.status is Status.PAUSED else record.node
        record = await _take_over(caller, record, force=bool(arguments.force))
        try:
            await _work_in_window(caller, record, name, browser, url)
        except SessionError as error:
            raise CommandError.of_session(record, error) from None
        finally:
            if holder is not None:
                with anyio.CancelScope(shield=True):
                    await _give_back(caller, record, holder)
    return await _report(store, record, arguments)


async def _browser_of(caller: ToolCaller, record: SessionRecord) -> tuple[str, BrowserConfig]:
    """Return the browser that a session has opened, else the first that it may open.

    Raises:
        CommandError: it uses none of this configuration.
    """
    browsers = caller.config.browsers()
    opened_services = [b.service for b in await caller.store.bindings(record.id) if b.generation]
    refuse_without_browser(caller.config, record)
    name = next(name for name in (*opened_services, *record.services) if name in browsers)
    return name, browsers[name]


def with_window(browser: BrowserConfig) -> BrowserConfig:
    """Return the configuration of a local browser with a window, made from the configured one.

    Raises:
        CommandError: the session has a person's window already, there is no display, or no such browser.
    """
    if browser.is_attached:
        raise CommandError(
            "attached",
            f"sessions work in the tabs of the browser at {browser.place}: use its own window",
        )
    machine = Machine()
    if not machine.display:
        raise CommandError(
            "no_display",
            "there is no display for a window: run this where one is (DISPLAY), or look at the page with "
            "statehold sessions screenshot",
        )
    local = {"headless": False, "cdp_endpoint": None, "ws_endpoint": None}
    windowed = browser.model_copy(update=local)
    try:
        executable = find_browser(windowed, machine)
    except NoBrowser:
        # The configured one may be a headless shell, which has no windows.
        windowed = windowed.model_copy(update={"executable": None, "channel": None})
        try:
            executable = find_browser(windowed, machine)
        except NoBrowser as error:
            raise CommandError(error.code, error.message) from None
    return windowed.model_copy(
        update={"executable": executable.path, "channel": executable.channel}
    )


async def _take_over(caller: ToolCaller, record: SessionRecord, *, force: bool) -> SessionRecord:
    """Take control in the process that holds a session, and have it save the session, close its browser and release it."""
    if record.node is None:
        return record
    holder = record.node
    control = await caller.ask(record, holder, "operator_take_control", holder=HOLDER)
    if control is None:
        return await caller.recover(record)
    try:
        await caller.ask(record, holder, "operator_release", keep=not force)
        current = await caller.store.get(record.id) or record
        if current.node is None:
            return current
    except BaseException:
        with anyio.CancelScope(shield=True):
            await caller.ask(record, holder, "operator_give_back", epoch=control["epoch"])
        raise
    await caller.ask(record, holder, "operator_give_back", epoch=control["epoch"])
    if record.status is not Status.PAUSED:
        await caller.ask(record, holder, "session_resume")
    raise CommandError(
        "session_busy",
        f"{record.id} has services that keep more than can be saved, which would be lost; --force gives that up",
        BUSY,
    )


async def _work_in_window(
    caller: ToolCaller, record: SessionRecord, name: str, browser: BrowserConfig, url: str | None
) -> None:
    node = await caller.join(WINDOW_NODE)
    seal = None if browser.key is None else await anyio.to_thread.run_sync(Encryption, browser.key)
    async with hold_browser(caller, node, record, name, browser, holder=HOLDER) as held_browser:
        window = Window(held_browser.connection, encryption=seal)
        async with _answer_commands(caller.config.data, node.id, held_browser):
            try:
                await _wait_until_closed(window, held_browser, record, url)
            finally:
                with anyio.CancelScope(shield=True):
                    held_browser.shown = window.shown
                    held_browser.final_snapshot = await window.final_snapshot()


async def _wait_until_closed(
    window: Window, held_browser: HeldBrowser, record: SessionRecord, url: str | None
) -> None:
    async def work() -> None:
        await window.show()
        _announce(record)
        if url is not None:
            await window.go(url)
        await window.save_until_closed(held_browser.save)

    with suppress(RaceLost):
        try:
            await race(_wait_for_signal, partial(race, held_browser.renew_control, work))
        except Exception:
            if not held_browser.connection.lost.is_set():
                raise


async def _wait_for_signal() -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        await anext(signals)


def _announce(record: SessionRecord) -> None:
    name = record.name or record.id
    complain(f"{name} is open in a window; close the window to give it back")


@asynccontextmanager
async def _answer_commands(
    data: Path, node: str, held_browser: HeldBrowser
) -> AsyncGenerator[None]:
    """Answer other commands while the window is open: they may read, but change nothing."""

    async def handler(request: OperatorRequest) -> JSON:
        if request.tool == "operator_sessions":
            return {"sessions": [held_browser.session.info()]}
        if request.arguments.get("session_id") != held_browser.session.id:
            raise SessionNotFound
        if request.tool == "operator_screenshot":
            options = Screenshot.model_validate(request.arguments)
            browser = held_browser.connection.session
            picture = await take_picture(browser, kind=options.kind, full_page=options.full_page)
            return picture_to_json(picture)
        raise SessionBusy(f"It is open in {WINDOW_NODE}.", recovery="Close the window first.")

    async with (
        local_socket(data / NODES, node) as local,
        local.serve({"operate": OperateVerb(handler)}),
    ):
        yield


async def _give_back(caller: ToolCaller, record: SessionRecord, holder: str) -> None:
    """Ask the process that held the session to resume it, if it still runs; else the next call resumes it."""
    try:
        await caller.ask(record, holder, "session_resume")
    except CommandError as error:
        complain(f"it stays paused: {error}")


async def _report(store: SQLStore, record: SessionRecord, arguments: CommandLine) -> int:
    current = await store.get(record.id) or record
    if arguments.json:
        summary = {"session_id": record.id, "name": record.name}
        say_json({**summary, "status": current.status.value})
    else:
        name = f" ({record.name})" if record.name else ""
        say(f"{record.id}{name} is {current.status.value}")
    return OK
