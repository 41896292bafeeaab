"""`statehold sessions screenshot`: a picture of the page that a session shows."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...server.config.model import Config
from ...server.exit_codes import OK
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord
from ..command_line import CommandLine
from ..errors import CommandError
from ..output import plain, say, say_json
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
