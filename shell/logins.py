"""`statehold logins`: log in at services that ask for it, see the logins, and forget them."""

from __future__ import annotations

import webbrowser

import anyio
import anyio.to_thread

from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, NOT_FOUND, OK
from ..server.gateway.stores import store_of
from ..server.printing import complain
from ..sessions.clock import SystemClock
from ..sessions.records import LOCAL, Principal
from ..sessions.store.base import LoginRecord
from ..sessions.store.sql import SQLStore
from ..sessions.times import timestamp
from ..tools.upstream.config import UpstreamConfig
from ..tools.upstream.oauth.authorization import AuthorizationFailed, ClientSettings, log_in
from ..tools.upstream.oauth.callback import local_person
from ..tools.upstream.oauth.logins import ServiceLogins
from .output import say, say_json, table
from .parser import CommandLine

LOGIN_SECONDS = 600.0
"""Seconds that a person may take."""


def run(config: Config, arguments: CommandLine) -> int:
    """Run one action and return its exit code."""
    if config.ephemeral:
        raise ConfigError("logins are kept in the data folder; leave out ephemeral")
    return anyio.run(_run, config, arguments)


async def _run(config: Config, arguments: CommandLine) -> int:
    async with store_of(config) as store:
        if arguments.action == "list":
            return _show(await store.logins.page(), json=arguments.json)
        owner = _owner(arguments)
        if arguments.action == "forget":
            if not await store.logins.delete(owner.key, arguments.name):
                return complain(f"there is no login at {arguments.name}", NOT_FOUND)
            say(f"The login at {arguments.name} is forgotten; its site may still know it.")
            return OK
        return await _add(config, store, owner, arguments)


def _owner(arguments: CommandLine) -> Principal:
    if arguments.subject is None:
        return LOCAL
    return Principal(issuer=arguments.issuer or "", subject=arguments.subject)


async def _add(config: Config, store: SQLStore, owner: Principal, arguments: CommandLine) -> int:
    service = config.enabled_services().get(arguments.name)
    if not isinstance(service, UpstreamConfig) or service.url is None:
        raise ConfigError(f"{arguments.name}: is no enabled service with a `url`")
    given = service.login
    settings = ClientSettings(given.client_id, given.client_secret, arguments.scope or given.scope)
    logins = ServiceLogins(store, SystemClock(), config.data, config.logins_key)

    async def show(address: str) -> None:
        say(f"Log in at:\n\n    {address}\n")
        if not arguments.url_only:
            await anyio.to_thread.run_sync(webbrowser.open, address)

    try:
        with anyio.fail_after(LOGIN_SECONDS):
            async with local_person(show) as person:
                document = await log_in(service.url, settings, person)
    except TimeoutError:
        return complain(f"nobody logged in within {LOGIN_SECONDS / 60:g} minutes", FAILURE)
    except AuthorizationFailed as error:
        return complain(error.message, FAILURE)
    await logins.put(owner.key, arguments.name, document)
    say(
        f"{owner.subject} is logged in at {arguments.name}. A server that runs uses it within half a minute."
    )
    return OK


def _show(logins: list[LoginRecord], *, json: bool) -> int:
    if json:
        say_json({"logins": [_describe(each) for each in logins]})
        return OK
    head = ("NAME", "OF", "STATE", "SINCE", "SITE", "")
    rows = [
        (
            each.name,
            Principal.of_key(each.owner).words,
            each.state,
            timestamp(each.since),
            each.site,
            each.reason,
        )
        for each in logins
    ]
    say(
        table(head, rows)
        if rows
        else "There are no logins; `statehold logins add SERVICE` makes one."
    )
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
        "since": timestamp(login.since),
        "expires_at": None if login.expires_at is None else timestamp(login.expires_at),
    }
