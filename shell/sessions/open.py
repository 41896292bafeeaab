"""`statehold sessions open`: opens the console at a session, whose page then takes control for the person."""

from __future__ import annotations

from urllib.parse import quote

import anyio.to_thread

from ...server.config.model import Config
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord
from ..command_line import CommandLine
from ..console import show_address, start_console
from ..errors import CommandError
from .screenshot import refuse_without_browser


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
