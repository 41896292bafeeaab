"""`statehold logins` for the logins of the built-in browser: log in, lend, import, check and take back."""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, INTERRUPTED, NOT_FOUND, OK
from ..server.operate.requests import OperatorRequest, ProcessUnavailable, ask
from ..server.printing import complain
from ..server.sockets.processes import list_nodes, read_processes
from ..server.sockets.request import Refused
from ..sessions.clock import SystemClock
from ..sessions.lifecycle import Status
from ..sessions.node import NODES
from ..sessions.records import ControlEnd, Principal, SessionDriver, SessionRecord
from ..sessions.store.base import NEEDS_HUMAN, NEW, REVOKED, UNCHECKED, LoginRecord
from ..sessions.store.base import OK as VALID
from ..sessions.store.sql import SQLStore
from ..tools.browser.logins.leases import KIND
from ..tools.browser.logins.sites import LoginSites, encode_value
from ..tools.browser.snapshot.storage_file import MAX_BYTES, parse_storage_state
from ..tools.foreign_file import read_foreign
from ..tools.logins.audit import LoginAudit
from ..tools.logins.config import BrowserLoginConfig
from ..tools.upstream.oauth.login_pages import LOGIN_SECONDS
from .console import console_address, open_page
from .output import CommandError, say
from .parser import CommandLine
from .sessions.tool_calls import ToolCaller, find_session

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at whether the login went back."""
CLOSE_SECONDS: Final = 20.0
VERDICT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.25


def declared_logins(
    config: Config, owner: Principal, rows: Collection[LoginRecord]
) -> list[LoginRecord]:
    """Return the logins of the configuration that are not among the stored ones of a principal."""
    stored = {each.name for each in rows if each.owner == owner.key}
    return [
        LoginRecord(
            owner=owner.key,
            name=name,
            kind=KIND,
            site=settings.sites[0],
            issuer="",
            state=NEW,
            since=0.0,
            sealed=b"",
        )
        for name, settings in config.logins.items()
        if isinstance(settings, BrowserLoginConfig) and name not in stored
    ]


async def log_in(config: Config, store: SQLStore, owner: Principal, arguments: CommandLine) -> int:
    """Have a person log in at a website, in a session of the running server, which ends with that. Return the exit code."""
    code = INTERRUPTED
    async with anyio.create_task_group() as tasks:
        await tasks.start(_cancel_on_signal, tasks.cancel_scope)
        try:
            code = await _log_in(config, store, owner, arguments)
        except Refused as error:
            code = complain(f"{error} {error.recovery}".strip())
        tasks.cancel_scope.cancel()
    return code


async def _cancel_on_signal(scope: anyio.CancelScope, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


async def _log_in(config: Config, store: SQLStore, owner: Principal, arguments: CommandLine) -> int:
    name, record = arguments.name, None
    url = await anyio.to_thread.run_sync(console_address, config.data)
    if url is not None:
        # Otherwise a session could begin that nothing closes.
        with anyio.CancelScope(shield=True):
            session_id = await _begin_log_in(config.data, owner, name)
            if session_id is not None:
                record = await store.get(session_id)
    if record is None:
        return complain(
            f"no server with a console runs for {config.data}; start it with `statehold serve`, or store the login of "
            f"another browser with `statehold logins import {name} FILE`"
        )
    try:
        address = f"{url}&at=s/{quote(record.id, safe='')}&take"
        say(f"Log in, then press Done, at:\n\n    {address}\n")
        if not arguments.url_only:
            await anyio.to_thread.run_sync(open_page, address, config.data)
        with anyio.move_on_after(LOGIN_SECONDS) as scope:
            while record.status is not Status.CLOSED:
                if record.control.driver is SessionDriver.HUMAN:
                    # The server closes the session when the person is done.
                    closed_by = anyio.current_time() + CLOSE_SECONDS
                    scope.deadline = max(scope.deadline, closed_by)
                await anyio.sleep(LOOK_SECONDS)
                record = await store.get(record.id) or record
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await _close(config, record, arguments)
    login = await store.logins.find(owner.key, name)
    state = NEW if login is None else login.state
    if record.control.end is not ControlEnd.DONE or state == NEW:
        return complain(f"nobody logged in: the login {name} is {state}")
    say(f"The login {name} is {state}. A session gets it by login_use.")
    return OK


async def _begin_log_in(data: Path, owner: Principal, name: str) -> str | None:
    """Return the id of the session in which a person logs in, None if no server runs."""
    request = OperatorRequest(tool="operator_log_in", arguments={"login": name}, owner=owner.key)
    for node in list_nodes(data):
        with suppress(ProcessUnavailable):
            return str((await ask(data / NODES, node, request))["session_id"])
    return None


async def _close(config: Config, record: SessionRecord, arguments: CommandLine) -> None:
    """Close a session in the process that holds it; without one it ends by itself."""
    if record.status is not Status.CLOSED and record.node is not None:
        with suppress(CommandError):
            caller = ToolCaller(config, arguments)
            await caller.ask(record, record.node, "session_close", force=True)


async def lend(config: Config, store: SQLStore, arguments: CommandLine) -> int:
    """Lend a login to a session, for its owner. Return the exit code."""
    record = await find_session(store, arguments.ref, config.data)
    caller = ToolCaller(config, arguments)
    await caller.call(record, "operator_lend_login", login=arguments.name)
    say(f"The session {record.name or record.id} has the login {arguments.name}.")
    return OK


async def import_login(
    config: Config, store: SQLStore, audit: LoginAudit, owner: Principal, name: str, file: Path
) -> int:
    """Store what a storage state has of the sites of a login, in place of its earlier value. Return the exit code."""
    settings = config.logins.get(name)
    if not isinstance(settings, BrowserLoginConfig):
        raise ConfigError(f'logins.{name}: is no login of the configuration with kind = "browser"')
    try:
        data = await anyio.to_thread.run_sync(read_foreign, file, MAX_BYTES)
        value = LoginSites(settings.sites).of(parse_storage_state(data))
    except OSError as error:
        return complain(f"{file} cannot be read: {error.strerror}", FAILURE)
    except ValueError as error:
        return complain(f"{file} {error}", FAILURE)
    if not value.cookies and not value.origins:
        return complain(f"{file} has nothing of {', '.join(settings.sites)}", FAILURE)
    record = LoginRecord(
        owner=owner.key,
        name=name,
        kind=KIND,
        site=settings.sites[0],
        issuer="",
        state=UNCHECKED,
        since=SystemClock().now(),
        sealed=await store.logins.seal(owner.key, name, encode_value(value)),
    )
    await audit.admit("import", owner.key, name)
    if not await store.logins.put(record):
        return complain(f"{name} is a login of another kind; forget it first", FAILURE)
    say(f"The login {name} is stored. A session gets it by login_use; delete {file}.")
    return OK


async def take_back(store: SQLStore, audit: LoginAudit, owner: Principal, name: str) -> int:
    """Have the session that has a login hand it back. Return the exit code."""
    await audit.admit("take-back", owner.key, name)
    if not await store.logins.take_back(owner.key, name):
        return complain(f"no session has the login {name}", NOT_FOUND)
    say(f"The session gives {name} back within some seconds.")
    return OK


async def check(
    config: Config, store: SQLStore, audit: LoginAudit, owner: Principal, name: str
) -> int:
    """Have a server check a login, and print the result. Return the exit code: whether it is valid."""
    settings = config.logins.get(name)
    if not isinstance(settings, BrowserLoginConfig) or settings.check is None:
        raise ConfigError(f"logins.{name}: is no login of the configuration with a `check`")
    if not config.cluster.enabled and not await anyio.to_thread.run_sync(
        read_processes, config.data
    ):
        return complain(f"no server runs for {config.data}, so nothing checks {name}", FAILURE)
    await audit.admit("request-check", owner.key, name)
    if not await store.logins.request_check(owner.key, name, KIND):
        return complain(f"there is no login {name}", NOT_FOUND)
    words = ""
    with anyio.move_on_after(VERDICT_SECONDS):
        while True:
            login = await store.logins.find(owner.key, name)
            if login is None:
                return complain(f"there is no login {name}", NOT_FOUND)
            words = login.state + (f": {login.reason}" if login.reason else "")
            if login.state == VALID and login.checked_at is not None and not login.reason:
                say(f"The login {name} is ok.")
                return OK
            is_over = login.checked_at is not None and login.reason
            if is_over or login.state in (NEW, NEEDS_HUMAN, REVOKED):
                return complain(f"the login {name} is {words}", FAILURE)
            await anyio.sleep(POLL_SECONDS)
    return complain(
        f"no check ended within {VERDICT_SECONDS:g} seconds; the login {name} is {words}", FAILURE
    )
