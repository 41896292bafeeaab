"""`statehold login`: opens an address in a window, in which a person logs in for a session."""

from __future__ import annotations

from ...server.config.model import Config
from ...server.exit_codes import NOT_FOUND
from ...sessions.errors import SessionError
from ...sessions.lifecycle import Status
from ...sessions.records import LOCAL, SessionRecord
from ...sessions.store.sql import SQLStore
from ...sessions.transitions.create import CreationOptions
from ...sessions.wording import SHELL, next_step
from ...tools.browser.errors import BrowserToolFailed
from ...tools.browser.process.executables import Machine
from ...tools.browser.tools.navigation import parse_url
from ..command_line import CommandLine
from ..errors import CommandError
from .lookup import find_session
from .tool_calls import ToolCaller, lazy_services
from .window import open_window, with_window


async def log_in(config: Config, store: SQLStore, arguments: CommandLine) -> int:
    """Open the session of `--session` at an address in a window; create the session if there is none of that name.

    Raises:
        CommandError: no window can be opened, and no session was created or changed.
    """
    name = config.server.session
    if not name:
        raise CommandError.usage("name the session that logs in: --session NAME")
    try:
        url = parse_url(arguments.url)
    except BrowserToolFailed as error:
        raise CommandError.usage(str(error)) from None
    if not Machine().display:
        raise CommandError(
            "no_display",
            "there is no display for a window: log in where one is, save that session's logins with browser_storage_state, "
            "and set storage_state = FILE here",
        )
    browser = next(iter(config.browsers().values()), None)
    if browser is None:
        raise CommandError("service_not_bound", "there is no browser in this configuration")
    record = await _find(config, store, name)
    if record is None:
        # Checked here too, because a created session would stay.
        with_window(browser)
        record = await _create(config, store, name)
    return await open_window(config, store, record, arguments, url=url)


async def _find(config: Config, store: SQLStore, name: str) -> SessionRecord | None:
    """Return the open session of a name or an id, or None if there is none."""
    try:
        record = await find_session(store, name, config.data)
    except CommandError as error:
        if error.exit_code != NOT_FOUND:
            raise
        return None
    return None if record.status in (Status.CLOSED, Status.CLOSING) else record


async def _create(config: Config, store: SQLStore, name: str) -> SessionRecord:
    """Create a session as a pinned caller does, and leave it to the next process that opens it."""
    async with ToolCaller(config, store) as caller:
        registry = await caller.open_registry(lazy_services(config))
        try:
            options = CreationOptions(name=name, namespace=config.namespace)
            session = await registry.create(LOCAL, options)
        except SessionError as error:
            raise CommandError(
                error.code, f"{error.message} {next_step(error.recovery, SHELL)}".strip()
            ) from None
    record = await store.get(session.id)
    assert record is not None
    return record
