"""`statehold logins import` and `take-back`: the logins of the built-in browser, which sessions have in turn."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, NOT_FOUND, OK
from ..server.printing import complain
from ..sessions.clock import SystemClock
from ..sessions.records import Principal
from ..sessions.store.base import UNCHECKED, LoginRecord
from ..sessions.store.sql import SQLStore
from ..tools.browser.logins.leases import KIND
from ..tools.browser.logins.sites import LoginSites, encode_value
from ..tools.browser.snapshot.storage_file import MAX_BYTES, parse_storage_state
from ..tools.foreign_file import read_foreign
from ..tools.logins.audit import LoginAudit
from ..tools.logins.config import BrowserLoginConfig
from ..tools.logins.sealing import LoginSealing
from .output import say


async def import_login(
    config: Config,
    store: SQLStore,
    sealing: LoginSealing,
    audit: LoginAudit,
    owner: Principal,
    name: str,
    file: Path,
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
        sealed=await sealing.seal(encode_value(value)),
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
