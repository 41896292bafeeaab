"""A site with a login, and browsers to which it is lent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.browsing import Browse, new_view, opened, running
from support.lent_logins import StoredLogin
from support.login_site import LoginSite, serve_logins

from statehold.sessions.clock import Clock, SystemClock
from statehold.sessions.principals.audit_log import AuditLog
from statehold.sessions.records import LOCAL
from statehold.sessions.store.sql import SQLStore
from statehold.tools.browser.logins.leases import LoginLeases
from statehold.tools.browser.service import BrowserService
from statehold.tools.logins.audit import LoginAudit
from statehold.tools.logins.config import BrowserLoginConfig
from statehold.tools.logins.sealing import LoginSealing

CAPS = ["network", "storage", "unsafe", "devtools"]


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
            self.sealing,
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
        lender = Lender(store, LoginSealing(folder), shop)
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
