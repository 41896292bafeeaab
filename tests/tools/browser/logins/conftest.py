"""A site with a login, and browsers to which it is lent."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from support.browsing import Browse, new_view, opened, running
from support.lent_logins import StoredLogin
from support.login_site import LoginSite, serve_logins
from support.waiting import until

from statehold.sessions.clock import Clock, SystemClock
from statehold.sessions.principals.audit_log import AuditEntry, AuditLog
from statehold.sessions.records import LOCAL
from statehold.sessions.store.sql import SQLStore
from statehold.tools.browser.logins.leases import LoginLeases
from statehold.tools.browser.service import BrowserService
from statehold.tools.logins.audit import LoginAudit
from statehold.tools.logins.config import BrowserLoginConfig

CAPS = ["network", "storage", "unsafe", "devtools"]
LOG_IN = """
import json, sys, urllib.request
with open(sys.argv[2], "a") as runs:
    runs.write("run\\n")
answer = urllib.request.urlopen(sys.argv[1] + "/in")
cookie = answer.headers["Set-Cookie"].split(";")[0].removeprefix("login=")
print(json.dumps({"cookies": [{"name": "login", "value": cookie, "domain": "127.0.0.1", "path": "/", "expires": -1,
    "httpOnly": True, "secure": False, "sameSite": "Lax"}]}))
"""
FAIL = """
import sys
with open(sys.argv[2], "a") as runs:
    runs.write("run\\n")
print("the password of ada")
sys.exit(3)
"""


FAIL_LATE = FAIL.replace(
    "print(", "import urllib.request\nurllib.request.urlopen(sys.argv[1] + '/hang')\nprint("
)


@dataclass
class Lender(StoredLogin):
    """A store with the login `shop`, and the leases of it."""

    def leases(
        self,
        clock: Clock | None = None,
        audit: AuditLog | None = None,
        *,
        other: dict[str, Any] | None = None,
        **settings: Any,
    ) -> LoginLeases:
        """`other`: the settings of a login `other` beside the login `shop`."""
        logins: dict[str, dict[str, Any]] = {"shop": {"sites": [self.site.address], **settings}}
        if other is not None:
            logins["other"] = other
        return LoginLeases(
            {
                name: BrowserLoginConfig.model_validate({"kind": "browser", **login})
                for name, login in logins.items()
            },
            self.store,
            clock or SystemClock(),
            LoginAudit(audit, clock or SystemClock()),
        )


class Lending(Protocol):
    def __call__(
        self, data: Path, clock: Clock | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[BrowserService]: ...


def session(service: BrowserService) -> AbstractAsyncContextManager[Browse]:
    """The browser of a new session of the user of this machine."""
    return opened(service, new_view(LOCAL.key))


@pytest.fixture
def shop() -> Generator[LoginSite]:
    """A site whose login ends when an old cookie is used."""
    with serve_logins("reuse") as site:
        site.log_in()
        yield site


@pytest.fixture
async def lender(tmp_path: Path, shop: LoginSite) -> AsyncGenerator[Lender]:
    folder = tmp_path / "store"
    folder.mkdir()
    async with SQLStore.sqlite(folder) as store:
        lender = Lender(store, shop)
        await lender.save()
        yield lender


@pytest.fixture
def lending(lender: Lender, shell: str) -> Lending:
    """Runs a browser service whose sessions can have the login `shop`."""

    @asynccontextmanager
    async def run(
        data: Path, clock: Clock | None = None, **settings: Any
    ) -> AsyncGenerator[BrowserService]:
        leases = lender.leases(clock, **settings)
        async with running(data, shell, caps=CAPS, logins=leases) as service:
            yield service

    return run


class Log:
    """The entries of an audit log."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def note(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        checks = ("login.check", "login.renew")
        return [
            (each.operation, str(each.outcome)) for each in self.entries if each.operation in checks
        ]


@dataclass
class Checks:
    """Runs services that check the login `shop`."""

    lender: Lender
    shell: str
    folder: Path

    @property
    def runs(self) -> int:
        """How often a command of `renew` was run."""
        file = self.folder / "runs"
        return file.read_text().count("run") if file.exists() else 0

    def command(self, program: str) -> list[str]:
        return [sys.executable, "-c", program, self.lender.site.address, str(self.folder / "runs")]

    @asynccontextmanager
    async def run(
        self,
        clock: Clock | None = None,
        *,
        path: str = "/",
        log: Log | None = None,
        data: str = "data",
        text: str = "",
        every: float = 900.0,
        **settings: Any,
    ) -> AsyncGenerator[tuple[BrowserService, LoginLeases]]:
        check = {"url": self.lender.site.address + path, "text": text, "every": every}
        audit = cast("AuditLog", log)
        leases = self.lender.leases(clock, audit, **{"check": check, **settings})
        folder = self.folder / data
        async with running(folder, self.shell, caps=CAPS, logins=leases) as service:
            yield service, leases

    async def until_state(self, state: str) -> None:
        async def is_reached() -> bool:
            row = await self.lender.row()
            return row.state == state and not row.lease_ends_at

        await until(is_reached)


@pytest.fixture
def checks(lender: Lender, shell: str, tmp_path: Path) -> Checks:
    return Checks(lender, shell, tmp_path)
