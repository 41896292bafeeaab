"""`statehold sessions open`: a person works in the browser of a session, in a window, and gives it back."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ...sessions.concurrency import Overtaken, beside
from ...sessions.errors import SessionBusy, SessionError, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.node import NODES
from ...sessions.records import SessionRecord
from ...tools.browser.config import BrowserConfig
from ...tools.browser.features.picture import take_picture
from ...tools.browser.process.executables import Machine
from ...tools.browser.process.find import NoBrowser, find_browser
from ...tools.browser.process.window import Window
from ...tools.browser.snapshot.encryption import Encryption
from ..control.screenshot import answer
from ..control.socket import serve_control
from ..control.visit import Visit, visiting
from .changes import Refused, SessionChanger
from .output import say, say_json
from .parser import BUSY, OK
from .screenshot import browser_of, refuse_closed, refused

PLACE = "a window that a person works in"
CAUSE = "window"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def open_window(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Open a session in a window and wait until it is closed. Meanwhile this process holds the session.

    Raises:
        Refused: it cannot be opened, and is unchanged.
    """
    refuse_closed(record)
    name, browser = await browser_of(changer, record, unopened=True)
    browser = _windowed(browser)
    holder = None if record.status is Status.PAUSED else record.node
    record = await _handed_over(changer, record, force=bool(arguments.force))
    try:
        await _worked_in(changer, record, name, browser)
    except SessionError as error:
        raise refused(record, error) from None
    finally:
        if holder is not None:
            with anyio.CancelScope(shield=True):
                await _back(changer, record, holder)
    return await _report(changer, record, arguments)


def _windowed(browser: BrowserConfig) -> BrowserConfig:
    """Return the configuration of a local browser with a window, made from the configured one.

    Raises:
        Refused: there is no display, or no such browser.
    """
    machine = Machine()
    if not machine.display:
        raise Refused(
            "no_display",
            "there is no display for a window: run this where one is (DISPLAY), or look at the page with "
            "statehold sessions screenshot",
        )
    local = {"headless": False, "cdp_endpoint": None, "ws_endpoint": None}
    wanted = browser.model_copy(update=local)
    try:
        found = find_browser(wanted, machine)
    except NoBrowser:
        # The configured one may be a headless shell, which has no windows.
        wanted = wanted.model_copy(update={"executable": None, "channel": None})
        try:
            found = find_browser(wanted, machine)
        except NoBrowser as error:
            raise Refused(error.code, error.message) from None
    return wanted.model_copy(update={"executable": found.path, "channel": found.channel})


async def _handed_over(
    changer: SessionChanger, record: SessionRecord, *, force: bool
) -> SessionRecord:
    """Ask the process that holds a session to save it, close its browser and release it."""
    if record.node is None:
        return record
    holder = record.node
    if await changer.ask(record, holder, "pause", force=force) is None:
        return await changer.take_off(record)
    fresh = await changer.store.get(record.id) or record
    if fresh.node is None:
        return fresh
    if record.status is not Status.PAUSED:
        await changer.ask(record, holder, "resume")
    raise Refused(
        "session_busy",
        f"{record.id} has services that keep more than can be saved, which would be lost; --force gives that up",
        BUSY,
    )


async def _worked_in(
    changer: SessionChanger, record: SessionRecord, name: str, browser: BrowserConfig
) -> None:
    node = await changer.joined(PLACE)
    seal = None if browser.key is None else await anyio.to_thread.run_sync(Encryption, browser.key)
    async with visiting(changer, record, name, browser, cause=CAUSE) as visit:
        window = Window(visit.connection, seal=seal)
        async with _answering(changer.config.data, node.id, visit):
            try:
                await _until_closed(window, visit, record)
            finally:
                with anyio.CancelScope(shield=True):
                    visit.saved = await window.saved()


async def _until_closed(window: Window, visit: Visit, record: SessionRecord) -> None:
    async def work() -> None:
        await window.show()
        _tell(record)
        await window.worked_in(visit.save)

    with suppress(Overtaken):
        try:
            await beside(_signalled, work)
        except Exception:
            if not visit.connection.lost.is_set():
                raise


async def _signalled() -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        await anext(signals)


def _tell(record: SessionRecord) -> None:
    name = record.name or record.id
    sys.stderr.write(f"statehold: {name} is open in a window; close the window to give it back\n")
    sys.stderr.flush()


@asynccontextmanager
async def _answering(data: Path, node: str, visit: Visit) -> AsyncGenerator[None]:
    """Answer other commands while the window is open: they may read, but change nothing."""

    async def handler(request: JSON) -> JSON:
        if request["op"] == "list":
            return {"sessions": [visit.session.info()]}
        if request["session"] != visit.session.id:
            raise SessionNotFound
        if request["op"] == "show":
            return {"session": visit.session.info()}
        if request["op"] == "screenshot":
            wanted = {"kind": request["kind"], "full_page": request["full_page"]}
            return answer(await take_picture(visit.connection.session, **wanted))
        raise SessionBusy(f"It is open in {PLACE}.", recovery="Close the window first.")

    async with serve_control(data / NODES, node, handler):
        yield


async def _back(changer: SessionChanger, record: SessionRecord, holder: str) -> None:
    """Ask the process that held the session to resume it, if it still runs; else the next call resumes it."""
    try:
        await changer.ask(record, holder, "resume")
    except Refused as error:
        sys.stderr.write(f"statehold: it stays paused: {error}\n")


async def _report(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    fresh = await changer.store.get(record.id) or record
    if arguments.json:
        shown = {"session_id": record.id, "name": record.name}
        say_json({**shown, "status": fresh.status.value})
    else:
        name = f" ({record.name})" if record.name else ""
        say(f"{record.id}{name} is {fresh.status.value}")
    return OK


__all__ = ["open_window"]
