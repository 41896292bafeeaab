"""`statehold sessions screenshot` and `open`: the page of a session as a picture, and in the hands of a person."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio.to_thread

from ...server.config.model import Config
from ...server.exit_codes import OK
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord
from ..console import show_address, start_console
from ..output import CommandError, plain, say, say_json
from ..parser import CommandLine
from .tool_calls import ToolCaller

KINDS: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}
_TOOL = "operator_screenshot"


async def save_screenshot(config: Config, record: SessionRecord, arguments: CommandLine) -> int:
    """Write a screenshot of a session's page into a file.

    Raises:
        CommandError: there is no picture.
    """
    file = Path(arguments.file)
    options: JSON = {"kind": _kind(file), "full_page": bool(arguments.full_page)}
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)
    picture = await ToolCaller(config, arguments).call(record, _TOOL, **options)
    await _write(file, base64.b64decode(picture["picture"]))
    if arguments.json:
        summary = {"session_id": record.id, "name": record.name, "file": str(file)}
        say_json({**summary, "url": picture["url"], "title": picture["title"]})
    else:
        say(f"{file} shows {plain(picture['title']) or 'a page'} ({plain(picture['url'])})")
    return OK


def refuse_without_browser(config: Config, record: SessionRecord) -> None:
    """Refuse a session that uses no browser of the configuration.

    Raises:
        CommandError: it uses none.
    """
    if not set(record.services) & set(config.browsers()):
        raise CommandError(
            "service_not_bound",
            f"{record.id} uses no browser of this configuration; give the --config of its server",
        )


def _kind(file: Path) -> str:
    kind = KINDS.get(file.suffix.lower())
    if kind is None:
        endings = ", ".join(KINDS)
        raise CommandError.usage(f"{file}: a picture is one of {endings}; name it like that")
    if not file.parent.is_dir():
        raise CommandError.usage(f"{file}: there is no folder {file.parent}; make it first")
    return kind


async def _write(file: Path, data: bytes) -> None:
    try:
        await anyio.to_thread.run_sync(file.write_bytes, data)
    except OSError as error:
        raise CommandError.usage(f"{file}: {error.strerror}; name another file") from None


async def open_session(config: Config, record: SessionRecord, arguments: CommandLine) -> int:
    """Open the console at a session in the browser of this user, or print its address. Starts a server if none runs.

    The page takes control when it has logged in; control ends there. A paused session is resumed then.

    Raises:
        CommandError: the session is closed or has no browser, or no console can be reached.
    """
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)
    if set(record.services) <= set(config.services):
        # Otherwise a server with another configuration knows which services are browsers.
        refuse_without_browser(config, record)
    return await anyio.to_thread.run_sync(_open, config, record, arguments)


def _open(config: Config, record: SessionRecord, arguments: CommandLine) -> int:
    address = f"{start_console(config.data, arguments)}&at=s/{quote(record.id, safe='')}&take"
    return show_address(address, config.data, arguments)
