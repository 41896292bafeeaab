"""The logins that one session has: lent into its context, saved while it has them, and handed back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.errors import (
    InvalidArgument,
    LoginBusy,
    NotAllowed,
    SessionError,
    StoreUnavailable,
)
from ....sessions.json_codec import JSON
from ....sessions.services import SessionView
from .. import errors
from ..devtools.world import WorldError
from ..errors import BrowserToolFailed
from ..snapshot.capture import LIGHT_STORAGE_LIMITS, STORAGE_LIMITS
from ..snapshot.model import ContextSnapshot
from ..snapshot.restore import add_cookies, delete_cookies
from .leases import RETAKE_SECONDS, RETRY_SECONDS, LoginLease, LoginLeases
from .requests import OpenRequests
from .sites import LoginSites, secret_texts

if TYPE_CHECKING:
    from ..egress.proxy import EgressAccess
    from ..session.session import BrowserSession

logger = logging.getLogger("statehold.browser")

DRAIN_SECONDS: Final = 3.0
"""Seconds for the headers of the answers under way. A site that takes longer leaves the login unchecked."""
STORAGE_SECONDS: Final = 5.0
"""Seconds to read the storage of the sites. What takes longer is as it was saved last."""
HAND_BACK_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 1.0
"""Seconds from a change that a page makes by itself until the login is saved."""


@dataclass(slots=True, eq=False)
class _Loan:
    """A login in the context of the session."""

    lease: LoginLease
    requests: OpenRequests
    is_dirty: bool = False
    """Whether a site has answered since the cookies were saved."""
    has_dirty_storage: bool = False
    """Whether one has since the storage was saved."""
    timer: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The wait for the end of its seconds without a call."""


class SessionLogins:
    """The logins of one session. It lives as long as the context; end() hands all of them back."""

    def __init__(
        self,
        leases: LoginLeases,
        view: SessionView,
        session: BrowserSession,
        access: EgressAccess | None,
    ) -> None:
        """`access` is None if the browser has a network of its own, which cannot be closed for sites."""
        self.sites = leases.sites
        self.in_use: Callable[[], bool] = lambda: False
        """Returns whether a call runs, or a person has control."""
        self._leases = leases
        self._view = view
        self._session = session
        self._access = access
        self._loans: dict[str, _Loan] = {}
        self._idle: dict[str, float] = {}
        """Logins that were handed back because no call came, each with when a call may take it again."""
        self._uncleared = frozenset[str]()
        """Origins of logins that the session has no more, and of which it may still have something."""
        self._called_at = leases.clock.now()
        self._lock = anyio.Lock()
        self._is_flushing = False
        session.trace.sites = self.sites
        self._update_route()

    def __bool__(self) -> bool:
        """Whether the session has a login."""
        return bool(self._loans)

    async def describe(self) -> list[str]:
        return await self._leases.describe(self._view)

    # Lending

    async def lend(self, name: str, seconds: float) -> None:
        """Get a login for the session, within some seconds if another session has it.

        Raises:
            SessionError: As LoginLeases.take() does; or the browser has a network of its own, or the session has another
                login or routes that do not go with it.
            playwright's Error: The browser failed; the session does not have the login.
        """
        if name in self._loans:
            return
        if self._access is None or self._session.config.remote:
            raise NotAllowed(
                "A login is only lent to a browser that Statehold starts, since it cannot hold back requests of others."
            )
        await self.receive(await self._leases.take(self._view, name, seconds))
        self._idle.pop(name, None)

    async def receive(self, lease: LoginLease) -> None:
        """Put a login that was taken for the session into its context. If that fails, it is given back.

        Raises:
            InvalidArgument: The session has another login, scripts or routes that do not go with it.
            playwright's Error: The browser failed.
        """
        try:
            await self._make_fit(lease)
            async with self._lock:
                await self._put_in(lease)
        except BaseException:
            with anyio.move_on_after(HAND_BACK_SECONDS, shield=True), suppress(StoreUnavailable):
                await self._leases.give_back(lease, None, is_sure=True, stays=False)
            self._leases.drop(lease)
            raise

    async def _make_fit(self, lease: LoginLease) -> None:
        """End the scripts of the agent in the pages, unless they may read the login. Raises as lend() does."""
        for name, loan in self._loans.items():
            if loan.lease.sites.overlaps(lease.sites):
                raise InvalidArgument(
                    f"The login {name} of this session may share cookies with {lease.name}; release it first."
                )
        scripts = self._session.scripts
        if lease.scripts:
            return
        if scripts.has_code:
            raise InvalidArgument(
                "Code that ran in this session could read the login; use a new session, or call session_restart."
            )
        if len(self._session.mocks):
            raise InvalidArgument("Mocked routes could read the login; call browser_unroute first.")
        if scripts.state != "none" and (refusal := await scripts.renew(milliseconds=None)):
            raise InvalidArgument(f"Scripts in the pages could read the login. {refusal}")

    async def _put_in(self, lease: LoginLease) -> None:
        session, sites = self._session, lease.sites
        try:
            await session.origins.block({*sites.origins, *session.origins.blocked})
            await self._clear_cookies(sites)
            await session.origins.put(lease.value.origins, instead_of=sites.origins)
            self._uncleared -= sites.origins
            await add_cookies(session.context, lease.value.cookies)
            await session.origins.block(session.origins.blocked - sites.origins)
        except BaseException:
            await self._empty(sites)
            raise
        self.admit(lease)

    def admit(self, lease: LoginLease, *, is_newer: bool = False) -> None:
        """Open the route to the sites of a login that the context has; `is_newer`: than the value that was sealed."""
        loan = _Loan(lease, OpenRequests(self._session.context, lease.sites))
        loan.requests.on_answer = lambda: self._mark_dirty(loan)
        loan.requests.on_doubt = lambda reason: self._leases.doubt(lease, reason)
        lease.on_lost = lambda: self._session.spawn(self._lose, loan)
        lease.on_taken_back = lambda: self._session.spawn(self._return_on_request, loan)
        self._hide(lease.value)
        self._loans[lease.name] = loan
        self._called_at = self._leases.clock.now()
        self._update_route()
        if not self._leases.holds(lease):
            # It was lost before it was here, with nobody to hear of it.
            self._session.spawn(self._lose, loan)
        if is_newer:
            self._mark_dirty(loan)
        self._session.spawn(self._hand_back_idle, loan)

    def _update_route(self, *, without: _Loan | None = None) -> None:
        if self._access is not None:
            self._access.shut(self._others(without).targets)

    def _others(self, without: _Loan | None = None) -> LoginSites:
        """Return the sites of the logins that the session does not have, and those of `without`."""
        held = [loan.lease.sites for loan in self._loans.values() if loan is not without]
        return LoginSites(self.sites.origins.difference(*(sites.origins for sites in held)))

    def _hide(self, value: ContextSnapshot) -> None:
        for text in secret_texts(value):
            self._session.secrets.named.hide(text)

    # Saving

    def _mark_dirty(self, loan: _Loan) -> None:
        loan.is_dirty = loan.has_dirty_storage = True
        if not self._is_flushing:
            self._is_flushing = True
            self._session.spawn(self._flush_later)

    async def _flush_later(self) -> None:
        try:
            await self._leases.clock.sleep_until(self._leases.clock.now() + FLUSH_SECONDS)
        finally:
            self._is_flushing = False
        await self.save(with_storage=True)

    async def save(self, *, with_storage: bool = False) -> None:
        """Seal the logins that changed since they were sealed last. Does nothing where no site has answered since.

        A failure is logged: the next change tries again.
        """

        def is_due(loan: _Loan) -> bool:
            return loan.is_dirty or (with_storage and loan.has_dirty_storage)

        if not any(map(is_due, self._loans.values())):
            return
        async with self._lock:
            for loan in list(self._loans.values()):
                if is_due(loan):
                    try:
                        await self._save(loan, with_storage=with_storage)
                    except BaseException as error:
                        loan.is_dirty = loan.has_dirty_storage = True
                        if not isinstance(error, StoreUnavailable | errors.Error | WorldError):
                            raise
                        logger.warning("the login %s was not saved", loan.lease.name, exc_info=True)

    async def _save(self, loan: _Loan, *, with_storage: bool) -> None:
        # Cleared first: what changes while the login is read is saved the next time.
        loan.is_dirty, lease = False, loan.lease
        loan.has_dirty_storage = loan.has_dirty_storage and not with_storage
        cookies = await self._cookies(lease.sites)
        value = replace(lease.value, cookies=cookies)
        if with_storage:
            limits = LIGHT_STORAGE_LIMITS
            origins = await self._session.origins.read_now(lease.sites.origins, limits, deep=False)
            value = replace(value, origins=origins)
        if value != lease.value:
            self._hide(value)
            if not await self._leases.write(lease, value):
                await self._cut_lost(loan)

    async def _cookies(self, sites: LoginSites) -> list[JSON]:
        cookies = await self._session.context.cookies()
        return sorted(
            (dict(cookie) for cookie in cookies if sites.has_cookie(cookie)),
            key=lambda cookie: (cookie["name"], cookie["domain"], cookie["path"]),
        )

    # Handing back

    async def release(self, name: str) -> None:
        """Hand a login back.

        Raises:
            InvalidArgument: The session does not have it.
            StoreUnavailable: The store does not answer; the session goes on having it.
        """
        self._idle.pop(name, None)
        if (loan := self._loans.get(name)) is None:
            raise InvalidArgument(f"The session does not have the login {name[:100]!r}.")
        async with self._lock:
            await self._hand_back(loan, stays=False)

    async def _hand_back(self, loan: _Loan, *, stays: bool, closes: bool = False) -> None:
        """Read the login when no answer is under way, give it back, and leave nothing of it in the context.

        `closes`: the context is closed next.
        """
        lease, origins = loan.lease, self._session.origins
        if self._loans.get(lease.name) is not loan:
            return
        await origins.block({*lease.sites.origins, *origins.blocked})
        try:
            is_drained = await loan.requests.drain(DRAIN_SECONDS)
            # Requests that cannot be blocked, as of service workers, end before another session has the login.
            self._update_route(without=loan)
            cookies = await self._cookies(lease.sites)
            value = replace(lease.value, cookies=cookies)
            # A page that does not answer keeps back neither the cookies nor the login.
            with anyio.move_on_after(STORAGE_SECONDS) as scope:
                stored = await origins.read_now(lease.sites.origins, STORAGE_LIMITS, deep=True)
                value = ContextSnapshot(cookies, stored)
            is_sure = is_drained and not scope.cancelled_caught
            await self._leases.give_back(lease, value, is_sure=is_sure, stays=stays)
            await self._cut(loan, closes=closes)
        finally:
            self._update_route()
            if not closes:
                with anyio.CancelScope(shield=True), suppress(errors.Error):
                    await origins.block(origins.blocked - lease.sites.origins)

    async def _cut(self, loan: _Loan, *, closes: bool = False) -> None:
        """Close the route to the sites, and clear what the context has of them."""
        self._loans.pop(loan.lease.name, None)
        loan.timer.cancel()
        loan.requests.close()
        self._update_route()
        if not closes:
            await self._empty(loan.lease.sites)

    async def _empty(self, sites: LoginSites) -> None:
        """Clear sites of which the session has no login any more. If that fails, the next call tries again."""
        self._uncleared |= sites.origins
        with anyio.move_on_after(HAND_BACK_SECONDS, shield=True):
            try:
                await self._clear_rest()
            except (errors.Error, WorldError):
                logger.warning("the sites of a login were not cleared", exc_info=True)

    async def _clear_rest(self) -> None:
        """Clear the sites that are to be cleared. Raises as clear() does."""
        if rest := self._uncleared:
            origins = self._session.origins
            await origins.block({*rest, *origins.blocked})
            await self.clear(LoginSites(rest))
            await origins.block(origins.blocked - rest)
            self._uncleared -= rest

    async def clear_others(self) -> None:
        """Clear the sites of the logins that the session does not have, in a context that another process left.

        Raises:
            playwright's Error: The browser refuses, or is gone.
        """
        others = self._others()
        if await self._foreign_cookies(others) or others.origins & set(
            self._session.origins.records.stored
        ):
            await self.clear(others)

    async def clear(self, sites: LoginSites) -> None:
        """Remove the cookies and the storage of sites from the context.

        Raises:
            playwright's Error: The browser refuses, or is gone.
        """
        await self._clear_cookies(sites)
        await self._session.origins.put({}, instead_of=sites.origins)

    async def _clear_cookies(self, sites: LoginSites) -> None:
        await delete_cookies(self._session.context, await self._foreign_cookies(sites))

    async def _foreign_cookies(self, sites: LoginSites) -> list[JSON]:
        """Return the cookies of sites but for those that a login of the session has, too."""
        held = [loan.lease.sites for loan in self._loans.values()]
        cookies = await self._cookies(sites)
        return [each for each in cookies if not any(own.has_cookie(each) for own in held)]

    async def _lose(self, loan: _Loan) -> None:
        async with self._lock:
            await self._cut_lost(loan)

    async def _cut_lost(self, loan: _Loan) -> None:
        if self._loans.get(loan.lease.name) is loan:
            self._leases.drop(loan.lease)
            self._session.add_event(f"The login {loan.lease.name} is no more with this session.")
            await self._cut(loan)

    async def _return_on_request(self, loan: _Loan) -> None:
        async with self._lock:
            if self._loans.get(loan.lease.name) is loan:
                await self._hand_back(loan, stays=False)
                self._session.add_event(
                    f"The login {loan.lease.name} was taken back by its person."
                )

    async def end(self, *, is_lost: bool, is_left: bool) -> None:
        """Hand all logins back because the context is closed next, within HAND_BACK_SECONDS.

        `is_lost`: the browser is gone, so the values may be old. `is_left`: the context goes on in another process.
        """
        loans = list(self._loans.values())
        with anyio.move_on_after(HAND_BACK_SECONDS, shield=True):
            async with self._lock:
                for loan in loans:
                    try:
                        if is_left:
                            self._leases.drop(loan.lease)
                        elif is_lost:
                            await self._leases.give_back(
                                loan.lease, None, is_sure=False, stays=True
                            )
                        else:
                            await self._hand_back(loan, stays=True, closes=True)
                    except Exception:
                        logger.warning(
                            "the login %s was not handed back", loan.lease.name, exc_info=True
                        )
                        self._leases.drop(loan.lease)
        for loan in loans:
            # One that was not handed back in time ends with its lease.
            self._leases.drop(loan.lease)
        self._loans.clear()
        for loan in loans:
            loan.timer.cancel()

    # Calls

    async def begin_call(self) -> None:
        """Take again what was handed back because no call came. A failure is an event of the call.

        It waits at most RETAKE_SECONDS for checks. A call RETRY_SECONDS later asks again for a login that was busy.

        Raises:
            playwright's Error, WorldError: Something of a login that the session has no more cannot be cleared.
        """
        self._called_at = self._leases.clock.now()
        async with self._lock:
            await self._clear_rest()
            # One that is being handed back right now is among them afterwards.
            names = sorted(name for name, at in self._idle.items() if at <= self._called_at)
        ends_at = anyio.current_time() + RETAKE_SECONDS
        for name in names:
            reason = "it is being checked."
            self._idle[name] = self._called_at + RETRY_SECONDS
            try:
                with anyio.CancelScope(deadline=ends_at):
                    await self.lend(name, 0.0)
                    continue
            except (SessionError, StoreUnavailable, errors.Error, WorldError) as error:
                reason = str(error)
                if not isinstance(error, LoginBusy | StoreUnavailable):
                    # It would fail again.
                    self._idle.pop(name, None)
            self._session.add_event(f"The login {name} was handed back without a call: {reason}")

    def begin_anew(self) -> None:
        """Note that a person has control, who logs in if that was asked for."""
        for loan in self._loans.values():
            self._leases.begin_anew(loan.lease)

    async def end_call(self) -> None:
        """Seal what the call changed, before its result is returned."""
        self._called_at = self._leases.clock.now()
        await self.save()

    async def _hand_back_idle(self, loan: _Loan) -> None:
        """Hand a login back after its seconds without a call."""
        clock, name, idle = self._leases.clock, loan.lease.name, loan.lease.settings.idle
        while self._loans.get(name) is loan:
            with anyio.CancelScope() as loan.timer:
                await clock.sleep_until(self._called_at + idle)
            async with self._lock:
                if self.in_use() or self._leases.owners.awaits_person(self._view, loan.lease.key):
                    self._called_at = clock.now()
                if self._loans.get(name) is not loan or clock.now() < self._called_at + idle:
                    continue
                try:
                    await self._hand_back(loan, stays=True)
                    self._idle[name] = 0.0
                except (StoreUnavailable, errors.Error, WorldError):
                    self._called_at = clock.now()

    def require_script(self, origin: str | None) -> None:
        """Check that an agent may run scripts in a document of this origin; None: in any document.

        One of a login that was given back is refused, too: it may remember what it had.

        Raises:
            BrowserToolFailed: It may reach a login that is lent without scripts.
        """
        for name, loan in self._loans.items():
            if not loan.lease.scripts and (origin is None or loan.lease.sites.is_near(origin)):
                raise BrowserToolFailed(
                    f"Scripts could read the login {name} here, and its settings do not allow them (`scripts`)."
                )
        allowed = [loan.lease.sites for loan in self._loans.values() if loan.lease.scripts]
        if origin is None or not self.sites.has_address(origin):
            return
        if not any(sites.has_address(origin) for sites in allowed):
            raise BrowserToolFailed(
                f"Scripts could read the login of {origin}, and its settings do not allow them (`scripts`)."
            )
