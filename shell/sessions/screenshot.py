"""`statehold sessions screenshot`: a picture of the page that a session shows."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...server.config.model import Config, ServiceConfig
from ...server.exit_codes import OK
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord
from ...sessions.store.sql import SQLStore
from ..command_line import CommandLine
from ..errors import CommandError
from ..output import plain, say, say_json
from .tool_calls import ToolCaller

KINDS: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}
_TOOL = "operator_screenshot"
_ELSEWHERE = ("session_not_found", "service_not_bound")
"""Error codes of a process that cannot open the session, after which another process is asked."""


async def save_screenshot(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Write a screenshot of a session's page into a file.

    The process that holds the session takes it; if there is none, another running process, else this one.

    Raises:
        CommandError: there is no picture.
    """
    file = Path(arguments.file)
    options: JSON = {"kind": _kind(file), "full_page": bool(arguments.full_page)}
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)
    async with ToolCaller(config, store) as caller:
        picture = await _take(caller, record, options)
    await _write(file, base64.b64decode(picture["picture"]))
    if arguments.json:
        summary = {"session_id": record.id, "name": record.name, "file": str(file)}
        say_json({**summary, "url": picture["url"], "title": picture["title"]})
    else:
        say(f"{file} shows {plain(picture['title']) or 'a page'} ({plain(picture['url'])})")
    return OK


async def _take(caller: ToolCaller, record: SessionRecord, options: JSON) -> JSON:
    picture, record = await caller.ask_holder(record, _TOOL, **options)
    if picture is None:
        picture = await caller.ask_any(record, _TOOL, unless=_ELSEWHERE, **options)
    if picture is None:
        services = await _opened_browser(caller, record)
        picture = await caller.call_here(record, _TOOL, services=services, **options)
    return picture


async def _opened_browser(caller: ToolCaller, record: SessionRecord) -> dict[str, ServiceConfig]:
    """Return the browser that a session has opened.

    Raises:
        CommandError: it has opened none of this configuration.
    """
    browsers = caller.config.browsers()
    for binding in await caller.store.bindings(record.id):
        if binding.generation and binding.service in browsers:
            return {binding.service: browsers[binding.service]}
    refuse_without_browser(caller.config, record)
    raise CommandError(
        "service_unavailable", f"{record.id} has opened no page yet; go to one first"
    )


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
