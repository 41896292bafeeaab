"""The logins of one process at servers that ask for OAuth: each principal's own, sealed in the store.

An access token is lent as a copy, since any number of requests may use it. A refresh token is used by one process at a time,
which has the lease of its row: servers take a second use for theft.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import anyio

from ....sessions.clock import Clock
from ....sessions.errors import ServiceUnavailable, StoreUnavailable
from ....sessions.owned_map import BoundedMap
from ....sessions.records import LOCAL
from ....sessions.store.base import NEEDS_HUMAN, OK, REVOKED, LoginRecord
from ...logins.audit import LoginAudit
from ...logins.masks import Masks

if TYPE_CHECKING:
    from ....sessions.store.sql import SQLStore
    from ..config import LoginSettings, UpstreamConfig
    from .authorization import LoginDocument
    from .login_pages import LoginPages, Spawn, Visit

logger = logging.getLogger("statehold.upstream")

KIND: Final = "oauth"
KEPT_SECONDS: Final = 1.0
"""Seconds for which a login, or its absence, is known without a look at the store: then a change counts everywhere."""
MAX_ABSENT: Final = 10_000
EARLY_SECONDS: Final = 30.0
"""Seconds before its end at which a token is renewed; less for one that lives shortly."""
EARLY_PART: Final = 0.1
LEASE_SECONDS: Final = 120.0
"""Seconds for which a process may renew a login, with all of its requests, and store it: twice RENEWAL_SECONDS at most."""
RENEWAL_SECONDS: Final = 40.0
"""Seconds that a renewal may take, that a store may take after it, and that others wait for it."""
LOOK_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 5.0
"""Seconds after which a token is asked for again, when there was none."""
REFUSED_SECONDS: Final = 60.0
"""Seconds for which no refusal renews a login, when its service has refused a token that was just renewed."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """An access token, and the scopes that it has."""

    token: str = field(repr=False)
    scope: str | None


@dataclass(slots=True)
class _Known:
    """A login as its row was last."""

    record: LoginRecord
    document: LoginDocument = field(repr=False)
    read_at: float
    masks: Masks


class ServiceLogins:
    """The logins of all principals. Any task may use it; it has nothing to close."""

    def __init__(self, store: SQLStore, clock: Clock, audit: LoginAudit) -> None:
        self.clock = clock
        self.spawn: Spawn | None = None
        """Set where the user of this machine is the caller: it can be given addresses at which to log in."""
        self.own_ports = set[int]()
        """Gets the port of the login pages; the gateway gives the ports that no page of a session may reach."""
        self._pages: LoginPages | None = None
        self._store = store
        self.audit = audit
        self._failed: dict[tuple[str, str], float] = {}
        """When a token was last asked for, and there was none."""
        self._refused: dict[tuple[str, str], float] = {}
        """When a service last refused a token that was just renewed."""
        self._known: dict[tuple[str, str], _Known] = {}
        self._absent = BoundedMap[tuple[str, str], float](MAX_ABSENT)
        """When a principal was last found without a usable login at a service: most services ask for none."""
        self._masks = WeakValueDictionary[tuple[str, str], Masks]()
        """The masks of the last tokens, while a connection or a login has them: a server may repeat one that was revoked."""
        self._turns: defaultdict[tuple[str, str], anyio.Lock] = defaultdict(anyio.Lock)

    async def bearer(
        self,
        owner: str,
        service: str,
        config: UpstreamConfig,
        *,
        but: Bearer | None = None,
        is_invalid: bool = False,
    ) -> Bearer | None:
        """Return the access token of a principal for a service, renewed if it ends soon or is `but`, which was refused.

        None if there is no login, it needs its person, or it is for another address. `is_invalid`: the service says that
        `but` has ended.

        Raises:
            ServiceUnavailable: a token that is needed cannot be had now.
            StoreUnavailable: the store does not answer.
        """
        known = await self._read(owner, service)
        if known is not None and known.document.site != config.url:
            self.audit.note_seldom("refuse", owner, service, "moved")
            known = None
        if known is None and config.login.grant == "client_credentials":
            known = await self._fetch(owner, service, config)
        if known is None:
            return None
        key = (owner, service)
        is_refused = but is not None and but.token == known.document.tokens.access_token
        if is_refused and self.clock.now() < self._refused.get(key, -math.inf) + REFUSED_SECONDS:
            is_refused = False
        is_urgent = is_refused or self._has_ended(known)
        if is_urgent or (self._ends_soon(known) and not self._turns[key].locked()):
            try:
                async with self._turns[key]:
                    known = await self._renewed(known, config.login, is_urgent, is_invalid)
            except (ServiceUnavailable, StoreUnavailable):
                if is_urgent:
                    raise
        if known is None:
            return None
        self.audit.note_seldom("use", owner, service)
        tokens = known.document.tokens
        return Bearer(tokens.access_token, tokens.scope)

    def masks(self, owner: str, service: str) -> Masks:
        """Return the masks for all responses of a service to a principal, which hide also the tokens that come later."""
        return self._masks.setdefault((owner, service), Masks())

    async def _fetch(self, owner: str, service: str, config: UpstreamConfig) -> _Known | None:
        """Log the client of a service in, unless its login was revoked. Raises as bearer() does."""
        from .authorization import log_in

        async with self._turns[owner, service]:
            known = await self._read(owner, service, anew=True)
            if known is not None and known.document.site == config.url:
                return known
            record = await self._store.logins.find(owner, service)
            if record is not None and record.state == REVOKED:
                return None
            if record is not None and record.kind != KIND:
                raise _another_kind(service)
            self._check_pause(owner, service)
            try:
                with anyio.fail_after(RENEWAL_SECONDS):
                    document = await log_in(config.url or "", config.login, None)
            except Exception as error:
                raise self._failure(owner, service, error) from error
            await self.put(owner, service, document)
            return await self._read(owner, service, anew=True)

    def _check_pause(self, owner: str, service: str) -> None:
        waits = self._failed.get((owner, service), -math.inf) + PAUSE_SECONDS - self.clock.now()
        if waits > 0:
            raise unavailable(service, "the last try has just failed", waits)

    def _failure(self, owner: str, service: str, error: Exception) -> ServiceUnavailable:
        """Return the error of a request that needs a token, and begin a pause: there is none now."""
        is_ours = isinstance(error, ServiceUnavailable | StoreUnavailable)
        words = str(error).rstrip(".") if is_ours else type(error).__name__
        logger.warning("the login at %s gets no token: %s", service, words)
        self._failed[owner, service] = self.clock.now()
        return unavailable(service, words, PAUSE_SECONDS)

    def note_refused(self, owner: str, service: str) -> None:
        """Record that a service has refused a token that was just renewed: another one would not help."""
        self._refused[owner, service] = self.clock.now()

    async def separates(self, service: str, owner: str) -> bool:
        """Whether a service answers a principal by a login, theirs or the operator's, and so not for others.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        return any([await self._read(each, service) is not None for each in (owner, LOCAL.key)])

    async def since(self, visit: Visit) -> float | None:
        """Return when the login that a visit replaces was made; None if there is none that can be used.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        known, site = await self._read(visit.owner, visit.service), visit.config.url
        return None if known is None or known.document.site != site else known.record.since

    def _has_ended(self, known: _Known) -> bool:
        ends_at = known.record.expires_at
        return ends_at is not None and self.clock.now() >= ends_at

    def _ends_soon(self, known: _Known) -> bool:
        ends_at, lives = known.record.expires_at, known.document.tokens.expires_in or 0
        if ends_at is None or not known.document.can_renew:
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
        if record is None or record.kind != KIND or record.state != OK:
            self._known.pop(key, None)
            self._absent[key] = now
            if record is not None:
                self.audit.note_seldom("refuse", owner, service, record.state)
            return None
        if known is None or known.record.sealed != record.sealed:
            known = _Known(record, await self._open(record), now, self.masks(owner, service))
            known.masks.add(known.document.secrets)
        await self._store.logins.note_use(record, now)
        known.record, known.read_at = record, now
        self._known[key] = known
        return known

    async def _renewed(
        self, used: _Known, settings: LoginSettings, is_urgent: bool, is_invalid: bool
    ) -> _Known | None:
        """Renew a login, here or by another process. Return it then, None if it cannot be used. Raises as bearer() does."""
        owner, service = used.record.owner, used.record.name
        deadline = self.clock.now() + RENEWAL_SECONDS
        while self.clock.now() < deadline:
            known = await self._read(owner, service, anew=True)
            if known is None or known.record.sealed != used.record.sealed:
                return known
            if not known.document.can_renew:
                if not is_invalid and not self._has_ended(known):
                    return known
                await self._end(known.record, "its token has ended and cannot be renewed")
                return None
            self._check_pause(owner, service)
            # The answer of the server must be stored, and the lease be ended, also if the caller leaves.
            with anyio.CancelScope(shield=True):
                if (record := await self._lease(known.record)) is not None:
                    return await self._renew(record, known.document, settings)
            if not is_urgent:
                return known
            await anyio.sleep(LOOK_SECONDS)
        raise self._failure(owner, service, TimeoutError())

    async def _lease(self, record: LoginRecord) -> LoginRecord | None:
        """Return the record that only this process may renew now, None if another one may."""
        now = self.clock.now()
        leased = replace(record, version=record.version + 1, lease_ends_at=now + LEASE_SECONDS)
        is_leased = await self._store.logins.lease(
            record.owner, record.name, record.version, now, leased.lease_ends_at
        )
        return leased if is_leased else None

    async def _renew(
        self, record: LoginRecord, document: LoginDocument, settings: LoginSettings
    ) -> _Known | None:
        """Renew a login that is leased, and end its lease. Return it, None if it needs its person."""
        # Imported here: most servers have no such login, and it would take 10 ms of their start.
        from .authorization import renew

        try:
            with anyio.fail_after(RENEWAL_SECONDS):
                renewed = await renew(document, settings)
            if renewed is None:
                await self._end(record, "its authorization server renews it no more")
                return None
            return await self._store_renewed(record, renewed)
        except Exception as error:
            with suppress(StoreUnavailable):
                await self._store.logins.release(record)
            raise self._failure(record.owner, record.name, error) from error

    async def _store_renewed(self, record: LoginRecord, document: LoginDocument) -> _Known | None:
        sealed, expires_at = (
            await self._seal(record.owner, record.name, document),
            self._end_of(document),
        )
        with anyio.move_on_after(RENEWAL_SECONDS):
            while True:
                # The former refresh token is used up: a store that does not answer is waited for.
                with suppress(StoreUnavailable):
                    if await self._store.logins.renew(record, sealed, expires_at):
                        self.audit.note("renew", record.owner, record.name)
                    return await self._read(record.owner, record.name, anew=True)
                await anyio.sleep(RETRY_SECONDS)
        raise StoreUnavailable("the store does not answer")

    async def _end(self, record: LoginRecord, reason: str) -> None:
        logger.warning("the login at %s needs its person: %s", record.name, reason)
        if await self._store.logins.end(record, reason, self.clock.now()):
            self.audit.note("renew", record.owner, record.name, NEEDS_HUMAN)
        self._known.pop((record.owner, record.name), None)

    async def revoke(self, owner: str, service: str) -> LoginRecord | None:
        """End the use of a login on all nodes, within KEPT_SECONDS. Return it as it was, None if there is none.

        Raises:
            StoreUnavailable: the store, or a required audit log, does not answer; the login goes on.
        """
        record = await self._store.logins.find(owner, service)
        if record is not None:
            await self.audit.admit("revoke", owner, service)
            await self._store.logins.revoke(owner, service, self.clock.now())
            self._known.pop((owner, service), None)
        return record

    async def end_tokens(self, record: LoginRecord) -> None:
        """Have the authorization server of a revoked login end its tokens.

        Raises:
            AuthorizationFailed: it did not.
            StoreUnavailable: the login cannot be opened.
        """
        from .authorization import revoke

        await revoke(await self._open(record))

    def _end_of(self, document: LoginDocument) -> float | None:
        seconds = document.tokens.expires_in
        return None if seconds is None else self.clock.now() + seconds

    async def put(self, owner: str, service: str, document: LoginDocument) -> None:
        """Store a new login in place of an earlier one.

        Raises:
            ServiceUnavailable: the principal has a login of another kind with this name.
            StoreUnavailable: the store, or a required audit log, does not answer.
        """
        from ...http_client import server_of

        issuer = "" if document.metadata is None else str(document.metadata.issuer)
        record = LoginRecord(
            owner=owner,
            name=service,
            kind=KIND,
            site=server_of(document.site),
            issuer=issuer,
            state=OK,
            since=self.clock.now(),
            sealed=await self._seal(owner, service, document),
            expires_at=self._end_of(document),
        )
        await self.audit.admit("grant", owner, service)
        if not await self._store.logins.put(record):
            raise _another_kind(service)
        for known in (self._absent, self._known):
            known.pop((owner, service), None)

    async def visit(self, owner: str, service: str, config: UpstreamConfig) -> Visit | None:
        """Return the address at which the user of this machine logs in at a service; None for another principal."""
        is_of_person = config.login.grant == "authorization_code"
        if self.spawn is None or owner != LOCAL.key or not is_of_person:
            return None
        if self._pages is None:
            from .login_pages import LoginPages

            self._pages = LoginPages(self.put, self.audit, self.clock, self.spawn, self.own_ports)
        try:
            return await self._pages.visit(owner, service, config)
        except OSError as error:
            logger.warning("no port can be opened for a login: %s", error.strerror)
            return None

    async def _seal(self, owner: str, name: str, document: LoginDocument) -> bytes:
        value = document.model_dump_json(exclude_none=True)
        return await self._store.logins.seal(owner, name, value)

    async def _open(self, record: LoginRecord) -> LoginDocument:
        from .authorization import LoginDocument

        try:
            return LoginDocument.model_validate(json.loads(await self._store.logins.open(record)))
        except ValueError:
            raise StoreUnavailable(f"the login {record.name} has no value that is one") from None


def _another_kind(service: str) -> ServiceUnavailable:
    words = f"The name {service} is that of a login of another kind."
    return ServiceUnavailable(words, recovery="Forget that one first, or rename the service.")


def unavailable(service: str, words: str, retry_after: float | None) -> ServiceUnavailable:
    """Return the error of a request that needs a token, when none can be had now."""
    error = ServiceUnavailable(
        f"The login at {service} cannot be used now: {words}.", retry_after=retry_after
    )
    error.did_not_run = True
    return error
