"""The leases of logins that the sessions of this process have."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.clock import Clock
from ....sessions.errors import (
    InvalidArgument,
    LoginBusy,
    LoginUnavailable,
    SessionError,
    StoreUnavailable,
)
from ....sessions.services import SessionView
from ....sessions.store.base import LENDABLE, NEW, OK, RENEWING, REVOKED, UNCHECKED, LoginRecord
from ....sessions.wording import did_you_mean
from ...logins.audit import LoginAudit
from ...logins.config import BrowserLoginConfig
from ..snapshot.model import ContextSnapshot
from .owners import LoginOwners
from .sites import LoginSites, decode_value, encode_value

if TYPE_CHECKING:
    from ....sessions.store.sql import SQLStore

logger = logging.getLogger("statehold.browser")

KIND: Final = "browser"
LEASE_SECONDS: Final = 60.0
EXTEND_SECONDS: Final = 20.0
"""Seconds after which a lease is extended."""
CUT_SECONDS: Final = 5.0
"""Seconds before the end of a lease at which its session loses the login, so that it never has one that another has."""
LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at whether the logins were taken back: one that is revoked is cut within a second."""
POLL_SECONDS: Final = 0.25
"""Seconds between two tries for a login that a session of another process has."""
CHECK_SECONDS: Final = 20.0
"""Seconds that a session waits at least for a login that is being checked."""
RETAKE_SECONDS: Final = 5.0
"""Seconds that a session which is resumed waits for the check of a login that it had."""
RETRY_SECONDS: Final = 5.0

LoginKey = tuple[str, str]
"""The owner and the name of a login."""


@dataclass(slots=True, eq=False)
class LoginLease:
    """A login while a session has it."""

    name: str
    settings: BrowserLoginConfig
    sites: LoginSites
    scripts: bool
    """Whether the agent may run scripts on its sites."""
    view: SessionView
    record: LoginRecord
    """The row with the version that this session may write."""
    value: ContextSnapshot = field(repr=False)
    """The value as it was sealed last."""
    ends_at: float
    on_lost: Callable[[], None] | None = None
    """Called when another process has the login, or may have it soon."""
    on_taken_back: Callable[[], None] | None = None
    """Called when its person asks for it."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while its row changes."""

    @property
    def key(self) -> LoginKey:
        return self.record.owner, self.name


class LoginLeases:
    """The leases of one process. Any task may use it; run() has to run while a lease is held."""

    def __init__(
        self,
        settings: Mapping[str, BrowserLoginConfig],
        store: SQLStore,
        clock: Clock,
        audit: LoginAudit,
        *,
        groups_of: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        """`groups_of` returns the groups of a principal, by its key."""
        self.settings = settings
        self.clock = clock
        self.sites = LoginSites(site for each in settings.values() for site in each.sites)
        """The sites of all logins: a session reaches only those whose login it has."""
        self._store = store
        self._audit = audit
        self.owners = LoginOwners(settings, store, audit, groups_of)
        self.needs_check: Callable[[LoginKey, LoginRecord | None], bool] | None = None
        """Returns whether a login has to be checked before a session gets it, and has that done; None without checks."""
        self._held: dict[LoginKey, LoginLease] = {}
        self._turns: defaultdict[LoginKey, anyio.Lock] = defaultdict(anyio.Lock)
        """By login, the turn of those who wait for it, in the order in which they came."""
        self._freed = anyio.Event()
        self._taken = anyio.Event()

    async def take(self, view: SessionView, name: str, seconds: float) -> LoginLease:
        """Return a login for a session, within some seconds if another one has it.

        One that is due for a check is checked first. A session in which a person is to log in gets it in any state, without
        a check, and before those that wait.

        Raises:
            InvalidArgument: There is no such login.
            LoginBusy: Another session still has it.
            LoginUnavailable: Its person has to log in again.
            StoreUnavailable: The store does not answer, or has the value of another key.
        """
        self.require(name)
        key = (await self.owners.owner_of(view.owner, name), name)
        is_log_in = self.owners.awaits_person(view, key)
        turn = anyio.Lock() if is_log_in else self._turns[key]
        deadline = anyio.current_time() + seconds
        try:
            turn.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(seconds) as scope:
                await turn.acquire()
            if scope.cancelled_caught:
                raise self._refuse(view, name, self._busy(name)) from None
        try:
            lease = await self._wait(view, key, deadline, checks=not is_log_in)
            if lease is None:
                raise self._refuse(view, name, self._busy(name))
            return lease
        finally:
            turn.release()

    async def _wait(
        self, view: SessionView, key: LoginKey, deadline: float, *, checks: bool = True
    ) -> LoginLease | None:
        """Return a login when nobody has it, None at the deadline. `checks`: one that is due is checked first."""
        checked_by = anyio.current_time() + CHECK_SECONDS
        while True:
            freed, ends_at = self._freed, deadline
            if checks and await self._is_checked_first(key):
                # A check is short, and the login is free afterwards.
                ends_at = max(deadline, checked_by)
            else:
                with anyio.CancelScope(shield=True):
                    if (lease := await self._try(view, key)) is not None:
                        return lease
            rest = ends_at - anyio.current_time()
            if rest <= 0:
                return None
            with anyio.move_on_after(min(POLL_SECONDS, rest)):
                await freed.wait()

    async def _is_checked_first(self, key: LoginKey) -> bool:
        needs = self.needs_check
        return needs is not None and needs(key, await self._store.logins.find(*key))

    async def overview(self) -> list[LoginRecord]:
        """Return the stored logins of the configuration without their values.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        found = await self._store.logins.overview(KIND)
        return [record for record in found if record.name in self.settings]

    async def take_to_check(self, view: SessionView, name: str) -> LoginLease | None:
        """Return a login for a check or a renewal; None if it is in use, or has to be left alone.

        Raises:
            StoreUnavailable: As take() does.
        """
        with anyio.CancelScope(shield=True):
            return await self._take(view, (view.owner, name), session=None)

    async def retake(self, view: SessionView) -> tuple[list[LoginLease], list[str]]:
        """Return the logins that a session had when it was paused or its process ended, and the names of those it lost.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        leases: list[LoginLease] = []
        lost: list[str] = []
        for record in await self._store.logins.held_by(view.id):
            key = (record.owner, record.name)
            if record.kind != KIND or record.name not in self.settings or self._has(view, key):
                continue
            # The rules may be others than when it was lent.
            may_have = (
                record.owner == view.owner or self.owners.rule(view.owner, record.name) is not None
            )
            lease = None
            try:
                with anyio.CancelScope(shield=True):
                    if self._may_lend(view, record) and may_have:
                        seconds = RETAKE_SECONDS if record.in_check else 0.0
                        deadline = anyio.current_time() + seconds
                        # A check that began meanwhile may have found that its person has to log in.
                        with suppress(LoginUnavailable):
                            lease = await self._wait(view, key, deadline, checks=False)
            except BaseException:
                for each in leases:
                    self.drop(each)
                raise
            if lease is None:
                lost.append(record.name)
            else:
                leases.append(lease)
        return leases, lost

    def _may_lend(self, view: SessionView, record: LoginRecord) -> bool:
        return record.state in LENDABLE or self.owners.awaits_person(
            view, (record.owner, record.name)
        )

    def _has(self, view: SessionView, key: LoginKey) -> bool:
        """Return whether a session has a login already, in another browser of its own."""
        return key in self._held and self._held[key].view.id == view.id

    def require(self, name: str) -> BrowserLoginConfig:
        """Return the settings of a login.

        Raises:
            InvalidArgument: There is no such login.
        """
        if name not in self.settings:
            hint = did_you_mean(name, self.settings)
            raise InvalidArgument(f"There is no login {name!r:.100} for browsers.{hint}")
        return self.settings[name]

    def begin_anew(self, lease: LoginLease) -> None:
        """Have a login be new, because the person who is to log in has control by now. Does nothing to others."""
        if self.owners.awaits_person(lease.view, lease.key):
            del self.owners.log_ins[lease.view.id]
            now = self.clock.now()
            lease.record = replace(lease.record, state=NEW, reason="", since=now)

    async def _try(self, view: SessionView, key: LoginKey) -> LoginLease | None:
        owner, name = key
        if self._has(view, key):
            raise self._refuse(view, name, self._busy(name, "Another browser of this session"))
        if (lease := await self._take(view, key, session=view.id)) is not None:
            self._note("lend", view, name)
            return lease
        found = await self._store.logins.find(owner, name)
        if found is None or (found.state == RENEWING and self.settings[name].renew_for(owner)):
            return None
        if found.kind != KIND:
            raise LoginUnavailable(f"The login {name} is one for a service.")
        if not self._may_lend(view, found):
            words = f"The login {name} is {found.state.replace('_', ' ')}"
            reason = f": {found.reason}" if found.reason else ""
            raise self._refuse(view, name, LoginUnavailable(f"{words}{reason}."))
        return None

    async def _take(
        self, view: SessionView, key: LoginKey, *, session: str | None
    ) -> LoginLease | None:
        owner, name = key
        settings, now = self.settings[name], self.clock.now()
        new = await self._new(owner, name)
        ends_at = now + LEASE_SECONDS
        is_log_in = session is not None and self.owners.awaits_person(view, key)
        record = await self._store.logins.take(new, session, now, ends_at, is_log_in=is_log_in)
        if record is None:
            return None
        sites = LoginSites(settings.sites)
        value = ContextSnapshot()
        if record.state != REVOKED:
            value = sites.of(decode_value(await self._store.logins.open(record)))
        lease = LoginLease(
            name=name,
            settings=settings,
            sites=sites,
            scripts=self.owners.rule(view.owner, name) or False,
            view=view,
            record=record,
            value=value,
            ends_at=ends_at,
        )
        if (former := self._held.get(key)) is not None:
            self._lose(former)
        self._held[key] = lease
        self._taken.set()
        return lease

    async def _new(self, owner: str, name: str) -> LoginRecord:
        """Return a login without a value."""
        return LoginRecord(
            owner=owner,
            name=name,
            kind=KIND,
            site=self.settings[name].sites[0],
            issuer="",
            state=NEW,
            since=self.clock.now(),
            sealed=await self._store.logins.seal(owner, name, encode_value(ContextSnapshot())),
        )

    async def write(self, lease: LoginLease, value: ContextSnapshot) -> bool:
        """Store the value of a login that goes on being lent. Return False if the session has lost it.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        record, is_written = lease.record, False
        sealed = await self._store.logins.seal(record.owner, record.name, encode_value(value))
        with anyio.CancelScope(shield=True):
            async with lease.lock:
                is_written = await self._store.logins.write_value(lease.record, sealed)
                if is_written:
                    lease.value = value
                    version = lease.record.version + 1
                    lease.record = replace(lease.record, sealed=sealed, version=version)
        if not is_written:
            self._note("write", lease.view, lease.name, "lost")
        return is_written

    def doubt(self, lease: LoginLease, reason: str) -> None:
        """Have a login go back unchecked, because a site seems not to know it any more."""
        record = lease.record
        if record.state in (OK, UNCHECKED) and not record.in_check:
            since = record.since if record.state == UNCHECKED else self.clock.now()
            record = replace(record, state=UNCHECKED, since=since)
            lease.record = replace(record, reason=reason, checked_at=None)

    async def record_check(
        self,
        lease: LoginLease,
        verb: str,
        state: str,
        *,
        reason: str = "",
        renewals: Collection[float] = (),
        outcome: str | None = None,
    ) -> bool:
        """Store the outcome of a check or a renewal, which is over or goes on. Return False if the lease was lost.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        now, is_stored = self.clock.now(), False
        with anyio.CancelScope(shield=True):
            async with lease.lock:
                texts = " ".join(f"{at:.0f}" for at in renewals)
                record = replace(lease.record, state=state, reason=reason, renewals=texts)
                record = replace(record, checked_at=now if state == OK else None)
                if state != lease.record.state:
                    record = replace(record, since=now)
                is_stored = await self._store.logins.record_check(record)
                if is_stored:
                    lease.record = record
        self._audit.note(verb, *lease.key, (outcome or state) if is_stored else "lost")
        return is_stored

    async def give_back(
        self, lease: LoginLease, value: ContextSnapshot | None, *, is_sure: bool, stays: bool
    ) -> bool:
        """End a lease with the last value; None leaves the one that was sealed last.

        `is_sure`: the value is the newest one. `stays`: the session takes the login again when it is opened again. Return
        False if the session had lost it.

        Raises:
            StoreUnavailable: The store does not answer; the lease goes on.
        """
        record = lease.record
        if value is not None:
            sealed = await self._store.logins.seal(record.owner, record.name, encode_value(value))
            record = replace(record, sealed=sealed)
        state = record.state
        # Cookies that a site sets before the person comes who is to log in are no login.
        may_fill = not self.owners.awaits_person(lease.view, lease.key)
        has_value = value is not None and bool(value.cookies or any(value.origins.values()))
        if (state == OK and not is_sure) or (state == NEW and has_value and may_fill):
            state = UNCHECKED
        if not record.in_check and (state != record.state or not is_sure):
            record = replace(record, checked_at=None)
        if state != record.state:
            record = replace(record, state=state, since=self.clock.now())
        if not stays:
            record = replace(record, session="")
        is_given = False
        with anyio.CancelScope(shield=True):
            async with lease.lock:
                record = replace(record, version=lease.record.version)
                is_given = await self._store.logins.give_back(record)
            self.drop(lease)
        if not record.in_check:
            self._note("release", lease.view, lease.name, "ok" if is_given else "lost")
        return is_given

    def holds(self, lease: LoginLease) -> bool:
        """Return whether this process still has a lease, as far as it knows."""
        return self._held.get(lease.key) is lease

    def drop(self, lease: LoginLease) -> None:
        """Forget a lease that this process has no more: another one has the session, or the login."""
        if self.holds(lease):
            del self._held[lease.key]
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Have those that wait for a login try again."""
        self._freed.set()
        self._freed = anyio.Event()

    async def run(self) -> None:
        """Extend the leases, and end those that were lost or taken back, until this is cancelled."""
        while True:
            if not self._held:
                if self._taken.is_set():
                    self._taken = anyio.Event()
                await self._taken.wait()
            await self.clock.sleep_until(self.clock.now() + LOOK_SECONDS)
            for lease in list(self._held.values()):
                if self.clock.now() > lease.ends_at - CUT_SECONDS:
                    self._lose(lease)
            try:
                await self._look()
            except StoreUnavailable:
                logger.warning("the leases of logins were not extended: the store does not answer")

    async def _look(self) -> None:
        leases, now = list(self._held.values()), self.clock.now()
        records = [lease.record for lease in leases]
        due = [lease for lease in leases if now >= lease.ends_at - LEASE_SECONDS + EXTEND_SECONDS]
        if due:
            await self._store.logins.extend([lease.record for lease in due], now + LEASE_SECONDS)
        standings = await self._store.logins.standings(records)
        for lease, record in zip(leases, records, strict=True):
            if lease.record is not record or lease.lock.locked() or lease.key not in self._held:
                continue
            standing = standings.get(lease.key)
            if standing is None or standing.version != record.version:
                self._lose(lease)
                continue
            if lease in due:
                lease.ends_at = now + LEASE_SECONDS
            if standing.session != record.session and lease.on_taken_back is not None:
                lease.on_taken_back()

    def _lose(self, lease: LoginLease) -> None:
        self._note("lend", lease.view, lease.name, "lost")
        self.drop(lease)
        if lease.on_lost is not None:
            lease.on_lost()

    async def describe(self, view: SessionView) -> list[str]:
        """Return a line for each login that a session may have: its sites, its state and who has it."""
        lines: list[str] = []
        for name, settings in self.settings.items():
            owner = await self.owners.owner_of(view.owner, name)
            found = await self._store.logins.find(owner, name)
            state = NEW if found is None or found.kind != KIND else found.state
            if found is not None and found.reason:
                state += f" ({found.reason})"
            holder = ""
            if found is not None and found.lease_ends_at > self.clock.now():
                if found.in_check:
                    holder = ", it is being checked"
                elif found.session:
                    own = found.session == view.id
                    holder = ", this session has it" if own else ", another session has it"
            lines.append(f"- {name}: {', '.join(settings.sites)}; {state}{holder}")
        return lines

    @staticmethod
    def _busy(name: str, holder: str = "Another session") -> LoginBusy:
        text = f"{holder} has the login {name}, or it is being checked or renewed."
        return LoginBusy(text, retry_after=RETRY_SECONDS)

    def _refuse(self, view: SessionView, name: str, error: SessionError) -> SessionError:
        self._note("refuse", view, name, error.code)
        return error

    def _note(self, verb: str, view: SessionView, name: str, outcome: str = "ok") -> None:
        self._audit.note(verb, view.owner, name, outcome, view.id)
