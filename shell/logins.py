"""`statehold logins`: log in at services and websites, store keys, see the logins, lend, revoke and forget them."""

from __future__ import annotations

import sys
import webbrowser
from getpass import getpass
from pathlib import Path

import anyio
import anyio.to_thread

from ..access.audit.recorder import Actor
from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, NOT_FOUND, OK, USAGE
from ..server.gateway.stores import store_of
from ..server.printing import complain
from ..sessions.clock import SystemClock
from ..sessions.errors import InvalidArgument, ServiceUnavailable
from ..sessions.principals.audit_log import AuditLog
from ..sessions.records import LOCAL, Principal
from ..sessions.store.base import LoginRecord
from ..sessions.store.sql import SQLStore
from ..sessions.times import timestamp
from ..tools.logins.audit import LoginAudit
from ..tools.logins.config import BrowserLoginConfig
from ..tools.logins.keys import KEY_BYTES, Keys
from ..tools.upstream.config import UnusableConfig, UpstreamConfig
from ..tools.upstream.oauth.login_pages import LOGIN_SECONDS, LoginPages, Visit
from ..tools.upstream.oauth.logins import KIND, ServiceLogins
from .browser_logins import check, declared_logins, import_login, lend, log_in, take_back
from .output import CommandError, say, say_json, table
from .parser import CommandLine

ANSWER_SECONDS = 2.0
"""Seconds that the browser may take to read the last page."""


def run(config: Config, arguments: CommandLine) -> int:
    """Run one action and return its exit code."""
    if config.ephemeral:
        raise ConfigError("logins are kept in the data folder; leave out ephemeral")
    try:
        return anyio.run(_run, config, arguments)
    except CommandError as error:
        return complain(str(error), error.exit_code)


async def _run(config: Config, arguments: CommandLine) -> int:
    async with store_of(config) as store:
        if arguments.action == "list":
            rows = await store.logins.page()
            return _list([*rows, *declared_logins(config, LOCAL, rows)], json=arguments.json)
        if arguments.action == "lend":
            return await lend(config, store, arguments)
        owner = _owner(arguments)
        if arguments.action == "show":
            rows = await store.logins.page(owner.key)
            for login in (*rows, *declared_logins(config, owner, rows)):
                if login.name == arguments.name:
                    return _show(login, json=arguments.json)
            return complain(f"there is no login {arguments.name}", NOT_FOUND)
        clock, audit = SystemClock(), _audit(config, store)
        if arguments.action == "add" and arguments.key:
            keys = Keys(config.logins, store, clock, audit)
            return await _add_key(keys, owner, arguments.name)
        if arguments.action == "add" and isinstance(
            config.logins.get(arguments.name), BrowserLoginConfig
        ):
            return await log_in(config, store, owner, arguments)
        if arguments.action == "import":
            file = Path(arguments.file)
            return await import_login(config, store, audit, owner, arguments.name, file)
        if arguments.action == "take-back":
            return await take_back(store, audit, owner, arguments.name)
        if arguments.action == "check":
            return await check(config, store, audit, owner, arguments.name)
        if arguments.action == "forget":
            await audit.admit("forget", owner.key, arguments.name)
            if not await store.logins.delete(owner.key, arguments.name):
                return complain(f"there is no login at {arguments.name}", NOT_FOUND)
            say(f"The login at {arguments.name} is forgotten; its site may still know it.")
            return OK
        logins = ServiceLogins(store, clock, audit)
        if arguments.action == "revoke":
            return await _revoke(logins, owner, arguments.name)
        found = await store.logins.find(owner.key, arguments.name)
        if found is not None and found.kind != KIND:
            return complain(f"{arguments.name} is a login of another kind; forget it first", USAGE)
        return await _add(config, logins, owner, arguments)


def _audit(config: Config, store: SQLStore) -> LoginAudit:
    required, actor = config.audit == "required", Actor.of_command()
    log = None if config.audit == "off" else AuditLog(store, "command", is_required=required)
    return LoginAudit(log, SystemClock(), actor.name)


async def _revoke(logins: ServiceLogins, owner: Principal, name: str) -> int:
    login = await logins.revoke(owner.key, name)
    if login is None:
        return complain(f"there is no login at {name}", NOT_FOUND)
    say(f"The login at {name} is revoked: nothing uses it after a second.")
    if login.kind != KIND:
        return OK
    try:
        await logins.end_tokens(login)
    except ServiceUnavailable as error:
        return complain(f"its authorization server may still know it: {error.message}", FAILURE)
    say("Its authorization server has ended its tokens.")
    return OK


def _owner(arguments: CommandLine) -> Principal:
    if arguments.subject is None:
        return LOCAL
    return Principal(issuer=arguments.issuer or "", subject=arguments.subject)


async def _add(
    config: Config, logins: ServiceLogins, owner: Principal, arguments: CommandLine
) -> int:
    service = config.enabled_services().get(arguments.name)
    if isinstance(service, UnusableConfig):
        raise ConfigError(f"{arguments.name}: {service.problem}")
    if not isinstance(service, UpstreamConfig) or service.url is None:
        raise ConfigError(f"{arguments.name}: is no enabled service with a `url`")
    if service.has_credentials:
        raise ConfigError(
            f"{arguments.name}: its `url` or `headers` have credentials, so no login is used"
        )
    if arguments.scope is not None:
        login = service.login.model_copy(update={"scope": arguments.scope})
        service = service.model_copy(update={"login": login})
    if service.login.grant == "client_credentials":
        return await _add_client(logins, arguments.name, service)
    visit: Visit | None = None
    async with anyio.create_task_group() as tasks:
        pages = LoginPages(logins.put, logins.audit, logins.clock, tasks.start_soon, set())
        try:
            visit = await pages.visit(owner.key, arguments.name, service)
        except OSError as error:
            return complain(f"no port can be opened for the login: {error.strerror}", FAILURE)
        tasks.start_soon(_show_address, visit, arguments.url_only)
        with anyio.move_on_after(LOGIN_SECONDS):
            await visit.tried.wait()
        with anyio.move_on_after(ANSWER_SECONDS):
            await pages.wait_answered()
        tasks.cancel_scope.cancel()
    if visit is None or not visit.ended.is_set():
        error = "" if visit is None else visit.error
        return complain(error or "nobody logged in within ten minutes", FAILURE)
    say(
        f"{owner.subject} is logged in at {arguments.name}. A server that runs uses it within half a minute."
    )
    return OK


async def _add_client(logins: ServiceLogins, name: str, service: UpstreamConfig) -> int:
    """Log the client of a service in, for all principals."""
    from ..tools.upstream.oauth.authorization import log_in

    try:
        document = await log_in(service.url or "", service.login, None)
        await logins.put(LOCAL.key, name, document)
    except ServiceUnavailable as error:
        return complain(error.message, FAILURE)
    say(f"The client of {name} is logged in.")
    return OK


async def _add_key(keys: Keys, owner: Principal, name: str) -> int:
    try:
        await keys.put(owner.key, name, await anyio.to_thread.run_sync(_read_key, name))
    except InvalidArgument as error:
        return complain(f"{error.message} {error.recovery}", USAGE)
    say(f"The key {name} is stored. A server that runs uses it within a second.")
    return OK


def _read_key(name: str) -> str:
    """Return the key that a person types, without echo, or that stdin has. Blocks."""
    return getpass(f"Key {name}: ") if sys.stdin.isatty() else sys.stdin.read(KEY_BYTES + 1)


async def _show_address(visit: Visit, url_only: bool) -> None:
    say(f"Log in at:\n\n    {visit.address}\n")
    if not url_only:
        await anyio.to_thread.run_sync(webbrowser.open, visit.address)


def _list(logins: list[LoginRecord], *, json: bool) -> int:
    if json:
        say_json({"logins": [_describe(each) for each in logins]})
        return OK
    head = ("NAME", "KIND", "OF", "STATE", "SINCE", "SITE", "SESSION", "USED", "")
    rows = [
        (
            each.name,
            each.kind,
            Principal.of_key(each.owner).words,
            each.state,
            _timestamp(each.since),
            each.site,
            each.session,
            _timestamp(each.used_at),
            each.reason,
        )
        for each in logins
    ]
    say(
        table(head, rows) if rows else "There are no logins; `statehold logins add NAME` makes one."
    )
    return OK


def _show(login: LoginRecord, *, json: bool) -> int:
    fields = _describe(login)
    if json:
        say_json(fields)
    else:
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in fields.items() if value]
        say("\n".join(lines))
    return OK


def _describe(login: LoginRecord) -> dict[str, object]:
    principal = Principal.of_key(login.owner)
    return {
        "name": login.name,
        "issuer": principal.issuer or None,
        "subject": principal.subject,
        "kind": login.kind,
        "site": login.site,
        "authorization_server": login.issuer or None,
        "state": login.state,
        "reason": login.reason or None,
        "since": _timestamp(login.since) or None,
        "expires_at": _timestamp(login.expires_at) or None,
        "session_id": login.session or None,
        "used_at": _timestamp(login.used_at) or None,
    }


def _timestamp(at: float | None) -> str:
    return timestamp(at) or "" if at else ""
