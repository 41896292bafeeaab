"""The logins of one process at servers that ask for OAuth: each principal's own, sealed in the store.

An access token is lent as a copy, since any number of requests may use it. A refresh token is used by one process at a time,
which has the lease of its row: servers take a second use for theft.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import httpx2

from ....sessions.clock import Clock
from ....sessions.errors import StoreUnavailable
from ....sessions.owned_map import BoundedMap
from ....sessions.records import LOCAL
from ....sessions.store.base import OK, LoginRecord
from ...http_client import server_of
from ...logins.sealing import LoginSealing

if TYPE_CHECKING:
    from ....sessions.store.sql import SQLStore
    from ..config import UpstreamConfig
    from .authorization import LoginDocument
    from .login_pages import LoginPages, Spawn, Visit

logger = logging.getLogger("statehold.upstream")

CHALLENGE: Final = "resource_metadata="
"""The part of a `WWW-Authenticate` header that offers a login by OAuth (RFC 9728)."""
LOGIN: Final = "statehold_login"
"""The extension of a request that was refused for want of a login: the login that its user can do."""
KEPT_SECONDS: Final = 1.0
"""Seconds for which a login, or its absence, is known without a look at the store: then a change counts everywhere."""
MAX_ABSENT: Final = 10_000
EARLY_SECONDS: Final = 30.0
"""Seconds before its end at which a token is renewed; less for one that lives shortly."""
EARLY_PART: Final = 0.1
LEASE_SECONDS: Final = 60.0
"""Seconds for which a process may renew a login, with all of its requests."""
RENEWAL_SECONDS: Final = 40.0
"""Seconds that a renewal may take, and that others wait for it."""
LOOK_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Bearer:
    """An access token, and the version of the login that it comes from."""

    token: str = field(repr=False)
    version: int


@dataclass(slots=True)
class _Known:
    """A login as its row was last."""

    record: LoginRecord
    document: LoginDocument = field(repr=False)
    read_at: float


class ServiceLogins:
    """The logins of all principals. Any task may use it; it has nothing to close."""

    def __init__(self, store: SQLStore, clock: Clock, sealing: LoginSealing) -> None:
        self.clock = clock
        self.spawn: Spawn | None = None
        """Set where the user of this machine is the caller: it can be given addresses at which to log in."""
        self.pages: LoginPages | None = None
        self._store = store
        self._sealing = sealing
        self._known: dict[tuple[str, str], _Known] = {}
        self._absent = BoundedMap[tuple[str, str], float](MAX_ABSENT)
        """When a principal was last found without a usable login at a service: most services ask for none."""
        self._turns: defaultdict[tuple[str, str], anyio.Lock] = defaultdict(anyio.Lock)

    async def bearer(
        self, owner: str, service: str, site: str, *, but: Bearer | None = None
    ) -> Bearer | None:
        """Return the access token of a principal for a service, renewed if it ends soon or is `but`, which was refused.

        None if there is no login, it needs its person, it is for another address, or it cannot be renewed now.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        known = await self._read(owner, service)
        if known is None or known.document.site != site:
            return None
        is_refused = but is not None and but.version == known.record.version
        if is_refused or self._ends_soon(known):
            async with self._turns[owner, service]:
                known = await self._renewed(owner, service, known)
        if known is None:
            return None
        return Bearer(known.document.tokens.access_token, known.record.version)

    def separates(self, service: str, owner: str) -> bool:
        """Whether a service answers a principal by a login, theirs or the operator's, and so not for others."""
        return any((each, service) in self._known for each in (owner, LOCAL.key))

    async def version(self, visit: Visit) -> int | None:
        """Return the version of the login that a visit replaces; None if there is none that can be used.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        known, site = await self._read(visit.owner, visit.service), visit.config.url
        return None if known is None or known.document.site != site else known.record.version

    def _ends_soon(self, known: _Known) -> bool:
        ends_at, lives = known.record.expires_at, known.document.tokens.expires_in or 0
        if ends_at is None or known.document.tokens.refresh_token is None:
            return False
        return self.clock.now() >= ends_at - min(EARLY_SECONDS, lives * EARLY_PART)

    async def _read(self, owner: str, service: str, *, anew: bool = False) -> _Known | None:
        key, now = (owner, service), self.clock.now()
        known = self._known.get(key)
        if not anew and known is not None and now < known.read_at + KEPT_SECONDS:
            return known
        if not anew and now < self._absent.get(key, -math.inf) + KEPT_SECONDS:
            return None
        record = await self._store.logins.find(owner, service)
        if record is None or record.state != OK:
            self._known.pop(key, None)
            self._absent[key] = now
            return None
        if known is None or known.record.version != record.version:
            known = _Known(record, await self._open(record), now)
        known.record, known.read_at = record, now
        self._known[key] = known
        return known

    async def _renewed(self, owner: str, service: str, used: _Known) -> _Known | None:
        """Renew a login, here or by another process. Return it when that is done, None if it cannot be used."""
        deadline = self.clock.now() + RENEWAL_SECONDS
        while self.clock.now() < deadline:
            known = await self._read(owner, service, anew=True)
            if known is None or known.record.version != used.record.version:
                return known
            if known.document.tokens.refresh_token is None:
                await self._end(known.record, "its token has ended and cannot be renewed")
                return None
            now, version = self.clock.now(), known.record.version
            if await self._store.logins.lease(owner, service, version, now, now + LEASE_SECONDS):
                # The answer of the server must be stored, also if the caller leaves.
                with anyio.CancelScope(shield=True):
                    return await self._renew(known)
            await anyio.sleep(LOOK_SECONDS)
        return None

    async def _renew(self, known: _Known) -> _Known | None:
        # Imported here: most servers have no such login, and it would take 10 ms of their start.
        from .authorization import AuthorizationFailed, renew

        record = known.record
        try:
            with anyio.fail_after(RENEWAL_SECONDS):
                document = await renew(known.document)
        except (AuthorizationFailed, TimeoutError) as error:
            logger.warning("the login at %s was not renewed: %s", record.name, error)
            await self._store.logins.release(record)
            return None
        if document is None:
            await self._end(record, "its authorization server renews it no more")
            return None
        sealed, expires_at = await self._seal(document), self._end_of(document)
        with anyio.move_on_after(RENEWAL_SECONDS):
            while True:
                # The former refresh token is used up: a store that does not answer is waited for.
                with suppress(StoreUnavailable):
                    await self._store.logins.renew(record, sealed, expires_at)
                    return await self._read(record.owner, record.name, anew=True)
                await anyio.sleep(RETRY_SECONDS)
        return None

    async def _end(self, record: LoginRecord, reason: str) -> None:
        logger.warning("the login at %s needs its person: %s", record.name, reason)
        await self._store.logins.end(record, reason, self.clock.now())
        self._known.pop((record.owner, record.name), None)

    def _end_of(self, document: LoginDocument) -> float | None:
        seconds = document.tokens.expires_in
        return None if seconds is None else self.clock.now() + seconds

    async def put(self, owner: str, service: str, document: LoginDocument) -> None:
        """Store a new login in place of an earlier one."""
        issuer = "" if document.metadata is None else str(document.metadata.issuer)
        record = LoginRecord(
            owner=owner,
            name=service,
            kind="oauth",
            site=server_of(document.site),
            issuer=issuer,
            state=OK,
            since=self.clock.now(),
            sealed=await self._seal(document),
            expires_at=self._end_of(document),
        )
        await self._store.logins.put(record)
        self._absent.pop((owner, service), None)

    async def _seal(self, document: LoginDocument) -> bytes:
        return await self._sealing.seal(document.model_dump_json(exclude_none=True))

    async def _open(self, record: LoginRecord) -> LoginDocument:
        from .authorization import LoginDocument

        return LoginDocument.model_validate(json.loads(await self._sealing.open(record)))


class AwaitedLogin:
    """A login that the user of this machine can do, at an address or by the command, in place of a refused one."""

    def __init__(self, logins: ServiceLogins, visit: Visit, refused: int | None) -> None:
        """`refused` is the version of the present login, which is refused, None without one."""
        self.address = visit.address
        self._logins = logins
        self._visit = visit
        self._refused = refused

    async def wait(self) -> bool:
        """Wait until the user is logged in. Return False if they take too long."""
        from .login_pages import LOGIN_SECONDS

        visit = self._visit
        with anyio.move_on_after(LOGIN_SECONDS):
            while not visit.ended.is_set():
                with anyio.move_on_after(KEPT_SECONDS):
                    await visit.ended.wait()
                with suppress(StoreUnavailable):
                    version = await self._logins.version(visit)
                    if version not in (None, self._refused):
                        visit.ended.set()
        return visit.ended.is_set()


class BearerAuth(httpx2.Auth):
    """Sends the access token of a principal with each request to a service, and renews it when it is refused."""

    def __init__(
        self, logins: ServiceLogins, owner: str, service: str, config: UpstreamConfig
    ) -> None:
        self._logins = logins
        self._owner = owner
        self._service = service
        self._config = config

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        bearer = await self._bearer(None)
        _set_bearer(request, bearer)
        response = yield request
        if response.status_code == 401 and bearer is not None:
            renewed = await self._bearer(bearer)
            if renewed is not None and renewed.version != bearer.version:
                _set_bearer(request, renewed)
                response = yield request
        if response.status_code == 401 and CHALLENGE in response.headers.get(
            "www-authenticate", ""
        ):
            request.extensions[LOGIN] = await self._login()

    async def _login(self) -> AwaitedLogin | None:
        """Return the login that the user of this machine can do; None for another principal."""
        logins = self._logins
        if logins.spawn is None or self._owner != LOCAL.key:
            return None
        if logins.pages is None:
            from .login_pages import LoginPages

            logins.pages = LoginPages(logins.put, logins.clock, logins.spawn)
        try:
            visit = await logins.pages.visit(self._owner, self._service, self._config)
            return AwaitedLogin(logins, visit, await logins.version(visit))
        except StoreUnavailable:
            return None
        except OSError as error:
            logger.warning("no port can be opened for a login: %s", error.strerror)
            return None

    async def _bearer(self, refused: Bearer | None) -> Bearer | None:
        try:
            site = self._config.url or ""
            return await self._logins.bearer(self._owner, self._service, site, but=refused)
        except StoreUnavailable as error:
            # An error here would end the whole connection; without a token, this request alone is refused.
            logger.warning("the login at %s cannot be read: %s", self._service, error)
            return None


def _set_bearer(request: httpx2.Request, bearer: Bearer | None) -> None:
    if bearer is not None:
        request.headers["authorization"] = f"Bearer {bearer.token}"
