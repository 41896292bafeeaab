"""Checks of logins while no session has them, and the renewal of those that their sites ended.

The row of a login is the state of its check, so that any process goes on after a crash: a check that finds nobody signed in
makes it `renewing`, the command of `renew` makes that `unchecked`, and the next check `ok`. Each step holds the lease.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ....sessions.errors import StoreUnavailable
from ....sessions.services import SessionView
from ....sessions.store.base import NEEDS_HUMAN, OK, RENEWING, UNCHECKED, LoginRecord, login_id
from ...logins.config import LoginCheck
from ...processes.command import CommandFailed, run_command
from .. import errors
from ..devtools.world import origin_of
from ..snapshot.model import ContextSnapshot
from ..snapshot.storage_file import parse_storage_state
from .leases import KIND, LoginKey, LoginLease, LoginLeases

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from ..connection import BrowserConnection

logger = logging.getLogger("statehold.browser")

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at which logins are due."""
OPEN_SECONDS: Final = 30.0
PAGE_SECONDS: Final = 20.0
TEXT_SECONDS: Final = 5.0
"""Seconds from the page to the text that it has to show: its script may still have to ask the site."""
USE_SECONDS: Final = 60.0
"""Seconds for all that a check does in its browser, which may hang."""
AGAIN_SECONDS: Final = 30.0
"""Seconds to the next check after one that found nothing out."""
NO_VERDICT: Final = "its last check found nothing out"
RENEW_SECONDS: Final = 120.0
NEXT_RENEWAL_SECONDS: Final = 60.0
"""Seconds from a renewal that did not help to the next one."""
RENEWALS: Final = 3
"""Renewals in DAY_SECONDS that may fail: a wrong password that is tried often locks the account."""
DAY_SECONDS: Final = 86_400.0
MAX_CHECKS: Final = 4
"""Checks and renewals at a time."""
GIVE_BACK_SECONDS: Final = 10.0


class LoginChecks:
    """The checks of one process, made while running() is entered."""

    def __init__(
        self,
        leases: LoginLeases,
        open_browser: Callable[[SessionView, None], Awaitable[BrowserConnection]],
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        """`open_browser` and `forget` are those of a service, which opens a browser for each check as for a session."""
        self._leases = leases
        self._open_browser = open_browser
        self._forget = forget
        self._clock = leases.clock
        self._tasks: TaskGroup | None = None
        self._running: set[LoginKey] = set()
        self._room = anyio.Semaphore(MAX_CHECKS)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Check each login when it is due, and have sessions wait for that, during the block.

        At its end the checks under way hand their logins back, so the browsers have to run until then.
        """
        async with anyio.create_task_group() as self._tasks:
            if any(settings.check for settings in self._leases.settings.values()):
                self._leases.needs_check = self._needs_check
                self._tasks.start_soon(self._look)
            try:
                yield
            finally:
                self._leases.needs_check = None
                self._tasks.cancel_scope.cancel()

    async def _look(self) -> None:
        while True:
            await self._clock.sleep_until(await self._start_due())

    async def _start_due(self) -> float:
        """Start the checks that are due, and return when to look again."""
        now = self._clock.now()
        next_at = now + LOOK_SECONDS
        with suppress(StoreUnavailable):
            for record in await self._leases.overview():
                due_at = self._due_at(record)
                if due_at <= now:
                    self._start((record.owner, record.name))
                else:
                    next_at = min(next_at, due_at)
        return next_at

    def _needs_check(self, key: LoginKey, record: LoginRecord | None) -> bool:
        """Return whether a login has to be checked before a session gets it; if it is due, start that."""
        now = self._clock.now()
        if record is None or record.kind != KIND:
            return False
        if is_due := self._due_at(record) <= now:
            self._start(key)
        if record.state == RENEWING and self._leases.settings[record.name].renew_for(record.owner):
            # A command may take minutes: sessions wait for it as long as they asked to.
            return False
        return is_due or (record.in_check > 0 and record.lease_ends_at > now)

    def _due_at(self, record: LoginRecord) -> float:
        """Return when a login has to be checked or renewed, while nobody has it."""
        settings, due_at = self._leases.settings[record.name], 0.0
        if settings.check is None:
            return math.inf
        if record.state == RENEWING:
            if renewals := self._renewals(record):
                due_at = renewals[-1] + NEXT_RENEWAL_SECONDS
        elif record.state in (OK, UNCHECKED):
            # A lease that ran out was not given back.
            if record.checked_at is not None and not record.lease_ends_at:
                seconds = AGAIN_SECONDS if record.reason else settings.check.every
                due_at = record.checked_at + seconds
        else:
            # Its person has to log in, or does so now.
            return math.inf
        return max(due_at, record.lease_ends_at)

    def _renewals(self, record: LoginRecord) -> list[float]:
        """Return when the command was started in the last day."""
        since = self._clock.now() - DAY_SECONDS
        return [at for at in map(float, record.renewals.split()) if at > since]

    def _start(self, key: LoginKey) -> None:
        assert self._tasks is not None
        if key not in self._running:
            self._running.add(key)
            self._tasks.start_soon(self._run, key)

    async def _run(self, key: LoginKey) -> None:
        """Check a login, and renew it and check it again if that is due at once."""
        owner, name = key
        view = SessionView(f"check-{login_id(owner, name)}", None, "", owner, generation=1)
        try:
            async with self._room:
                while (lease := await self._leases.take_to_check(view, name)) is not None:
                    try:
                        if lease.record.state == RENEWING:
                            await self._renew(lease)
                        else:
                            await self._check(lease)
                    finally:
                        await self._give_back(lease)
                    if self._due_at(replace(lease.record, lease_ends_at=0.0)) > self._clock.now():
                        break
        except Exception as error:
            # The message of an error may hold an address with a secret.
            logger.warning("the login %s was not checked: %s", name, type(error).__name__)
        finally:
            self._running.discard(key)
            self._leases.wake_waiters()

    async def _give_back(self, lease: LoginLease) -> None:
        """Give a login back that did not come into a context, or did not come out of it."""
        if self._leases.holds(lease):
            try:
                with anyio.move_on_after(GIVE_BACK_SECONDS, shield=True):
                    await self._leases.give_back(lease, None, is_sure=True, stays=True)
            finally:
                # If the store did not answer, it is free when its lease ends.
                self._leases.drop(lease)

    # Checks

    async def _check(self, lease: LoginLease) -> None:
        check = lease.settings.check
        assert check is not None
        # No process tries again at once if it fails.
        self._put_off(lease)
        with anyio.fail_after(OPEN_SECONDS):
            connection = await self._open_browser(lease.view, None)
        try:
            if connection.resumption is not None:
                # It is no session that a later process takes over.
                connection.resumption.end()
                connection.resumption = None
            logins = connection.logins
            assert logins is not None
            # It ends with the check, not after a while without calls.
            logins.in_use = lambda: True
            with anyio.fail_after(USE_SECONDS):
                await logins.receive(lease)
                lease.on_taken_back = None
                reason = await _read_page(connection.session.context, check)
                await logins.save()
            if reason:
                await self._refuse(lease, "check", reason, self._renewals(lease.record))
            elif reason is not None:
                await self._leases.record_check(lease, "check", OK)
            else:
                self._put_off(lease)
        finally:
            await connection.aclose()
            await self._forget(lease.view.id)

    def _put_off(self, lease: LoginLease) -> None:
        """Have the next check wait for AGAIN_SECONDS, unless this one finds something out."""
        reason = lease.record.reason or NO_VERDICT
        lease.record = replace(lease.record, reason=reason, checked_at=self._clock.now())

    async def _refuse(
        self, lease: LoginLease, verb: str, reason: str, renewals: list[float]
    ) -> None:
        """Record that a login is not valid, and whether its command or its person logs in again."""
        state = RENEWING
        if not lease.settings.renew_for(lease.record.owner):
            state = NEEDS_HUMAN
        elif len(renewals) >= RENEWALS:
            state, reason = NEEDS_HUMAN, f"{reason}, after {RENEWALS} renewals in a day"
        await self._leases.record_check(lease, verb, state, reason=reason, renewals=renewals)

    # Renewals

    async def _renew(self, lease: LoginLease) -> None:
        renewals, reason = self._renewals(lease.record), lease.record.reason
        command = lease.settings.renew_for(lease.record.owner)
        if not command or len(renewals) >= RENEWALS:
            # The settings are others by now, or the process ended while the last one ran.
            return await self._refuse(lease, "renew", reason, renewals)
        renewals.append(self._clock.now())
        # Counted before it runs: one that was cut off may have tried the password. The next one waits from its end.
        record = partial(self._leases.record_check, lease, "renew", renewals=renewals)
        if not await record(RENEWING, reason=reason, outcome="started"):
            return None
        try:
            try:
                output = await run_command(command, seconds=RENEW_SECONDS)
            finally:
                renewals[-1] = self._clock.now()
            value = lease.sites.of(await anyio.to_thread.run_sync(_parse, output))
            if not value.cookies and not value.origins:
                raise ValueError("has nothing of its sites")
        except CommandFailed as error:
            reason = f"the command of `renew` failed: {error}"
            return await self._refuse(lease, "renew", reason, renewals)
        except ValueError as error:
            reason = f"the output of `renew` {error}"
            return await self._refuse(lease, "renew", reason, renewals)
        if await self._leases.write(lease, value):
            await record(UNCHECKED, outcome="ok")
        return None


def _parse(output: str) -> ContextSnapshot:
    return parse_storage_state(output.encode())


async def _read_page(context: BrowserContext, check: LoginCheck) -> str | None:
    """Return why nobody is signed in on the page of a check, an empty text if somebody is, None if that is not known."""
    page = await context.new_page()
    try:
        with anyio.fail_after(PAGE_SECONDS):
            response = await page.goto(check.url)
            status = 0 if response is None else response.status
            if status == 0 or status >= 500 or status in (408, 429):
                return None
            if status >= 400:
                return f"the page of its check answered {status}"
            is_shown = True
            if check.text:
                shown = page.get_by_text(check.text).filter(visible=True).first
                try:
                    await shown.wait_for(timeout=TEXT_SECONDS * 1000)
                except errors.TimeoutError:
                    is_shown = False
            if _place(page.url) != _place(check.url):
                return "the page of its check led to another one"
            return "" if is_shown else "the page of its check does not show the text"
    except (TimeoutError, errors.Error):
        return None


def _place(url: str) -> tuple[str | None, str]:
    return origin_of(url), urlsplit(url).path or "/"
