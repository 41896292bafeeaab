"""`statehold sessions screenshot`, and the parts that it shares with `open`."""

from __future__ import annotations

import base64
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio.to_thread

from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord
from ...tools.browser.config import BrowserConfig
from .changes import Refused, SessionChanger
from .output import plain, say, say_json
from .parser import OK, USAGE

if TYPE_CHECKING:
    from ...tools.browser.features.picture import PictureKind


KINDS: dict[str, PictureKind] = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".webp": "webp",
}
ELSEWHERE = ("session_not_found", "service_not_bound")
"""The codes with which a process refuses a session that another process, or this one, may be able to open."""


async def screenshot(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Write a screenshot of a session's page into a file.

    The process that holds the session takes it; if there is none, another running process, else this one.

    Raises:
        Refused: there is no picture.
    """
    file = Path(arguments.file)
    kind = _kind(file)
    wish: JSON = {"kind": kind, "full_page": bool(arguments.full_page)}
    refuse_closed(record)
    found: JSON | None = None
    if record.node is not None:
        found = await changer.ask(record, record.node, "screenshot", **wish)
        if found is None:
            record = await changer.take_off(record)
    if found is None:
        found = await changer.ask_any(record, "screenshot", unless=ELSEWHERE, **wish)
    if found is None:
        found = await _own(changer, record, **wish)
    await _write(file, base64.b64decode(found["picture"]))
    if arguments.json:
        shown = {"session_id": record.id, "name": record.name, "file": str(file)}
        say_json({**shown, "url": found["url"], "title": found["title"]})
    else:
        say(f"{file} shows {plain(found['title']) or 'a page'} ({plain(found['url'])})")
    return OK


def _kind(file: Path) -> PictureKind:
    found = KINDS.get(file.suffix.lower())
    if found is None:
        endings = ", ".join(KINDS)
        raise Refused("usage", f"{file}: a picture is one of {endings}; name it like that", USAGE)
    if not file.parent.is_dir():
        raise Refused("usage", f"{file}: there is no folder {file.parent}; make it first", USAGE)
    return found


async def _own(
    changer: SessionChanger, record: SessionRecord, *, kind: str, full_page: bool
) -> JSON:
    """Open the session here, as the process that holds it would."""
    # Imported here: these modules take a second, and only this function needs them.
    from ...tools.browser.features.picture import take_picture
    from ..control.screenshot import CAUSE, answer
    from ..control.visit import visiting

    name, browser = await browser_of(changer, record)
    try:
        async with visiting(changer, record, name, browser, cause=CAUSE, unseen=True) as visit:
            own = visit.connection.session
            wanted = cast("PictureKind", kind)
            return answer(await take_picture(own, kind=wanted, full_page=full_page))
    except SessionError as error:
        raise refused(record, error) from None


async def _write(file: Path, data: bytes) -> None:
    try:
        await anyio.to_thread.run_sync(file.write_bytes, data)
    except OSError as error:
        raise Refused("usage", f"{file}: {error.strerror}; name another file", USAGE) from None


async def browser_of(
    changer: SessionChanger, record: SessionRecord, *, unopened: bool = False
) -> tuple[str, BrowserConfig]:
    """Return the browser that a session uses; one that it has not opened yet only with `unopened`.

    Raises:
        Refused: it uses none of this configuration.
    """
    known = changer.config.browsers()
    opened = [b.service for b in await changer.store.bindings(record.id) if b.generation]
    for name in (*opened, *(record.services if unopened else ())):
        if name in known:
            return name, known[name]
    if not set(record.services) & set(known):
        raise Refused(
            "service_not_bound",
            f"{record.id} uses no browser of this configuration; give the --config of its server",
        )
    raise Refused("service_unavailable", f"{record.id} has opened no page yet; go to one first")


def refuse_closed(record: SessionRecord) -> None:
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise Refused("session_closed", f"{record.id} is closed; make a new session")


def refused(record: SessionRecord, error: SessionError) -> Refused:
    return Refused(error.code, f"{record.id}: {error.message} {error.recovery}".strip())


__all__ = ["browser_of", "refuse_closed", "refused", "screenshot"]
