"""Opening the browser of one session: creating its context and egress access, and restoring and saving its state."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.errors import ServiceUnavailable
from ....sessions.services import RestoreReport, SessionView, Snapshot
from ..config import BrowserConfig
from ..connection import BrowserConnection
from ..egress.service import Egress, refuse_schemes
from ..process.liveness import Gone, while_alive
from ..process.pool import BrowserDied
from ..session.clipboard import Clipboard, owns_browser
from ..session.failures import in_words
from ..session.files import Files
from ..session.session import BrowserSession
from ..tool import BrowserTool
from .capture import capture
from .encryption import Encryption
from .interception import RequestInterceptor
from .model import ContextSnapshot
from .restore import RestoredContext, restore_context
from .world import WorldError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Error

    from ..egress.proxy import EgressAccess
    from ..process.pool import BrowserProcess
    from .storage import OriginStorage

SAVE_SECONDS: Final = 15.0
CHECKPOINT_SECONDS: Final = 4.0
RESTORE_SECONDS: Final = 10.0
"""Seconds for the current page to load again; the tab exists even if it does not."""
DEATH_SECONDS: Final = 2.0
"""Seconds to wait for the disconnect event of a browser that no longer answers."""
EVENT_LINES: Final = 50
"""The most event lines from the proxy that wait for the next result."""

NEVER_SAVED: Final = "the tabs and logins (nothing had been saved yet)"


class Opening:
    """The opening of one connection. Used once; the connection owns all that was opened."""

    def __init__(
        self,
        config: BrowserConfig,
        view: SessionView,
        files: Files,
        *,
        spawn: Callable[..., None],
    ) -> None:
        self._config = config
        self._view = view
        self._files = files
        self._spawn = spawn
        self._session: BrowserSession | None = None
        self._early: list[str] = []

    async def connection(
        self,
        process: BrowserProcess,
        egress: Egress,
        hibernated: ContextSnapshot | None,
        tools: Mapping[str, BrowserTool],
        *,
        seal: Encryption | None,
        was_on: Sequence[str] | None = None,
    ) -> BrowserConnection:
        """Open the context and restore the saved state.

        `was_on` lists the activities that were lost with the last context, if known; it replaces the list in the snapshot.

        Raises:
            BrowserDied: The browser ended meanwhile.
            ServiceUnavailable: The configuration asks for more than the browser supports, or the browser refused.
        """
        from playwright.async_api import Error

        if hibernated is not None and was_on is not None:
            hibernated = replace(hibernated, activities=list(was_on))
        grant = await egress.admit(self._note_refusal, owner=self._view.owner)
        if grant is not None:
            self._files.hold = grant.bandwidth.hold
        try:
            resumed = await while_alive(
                partial(self._restore, process, grant, hibernated),
                process.lost,
                process.check,
                self._spawn,
            )
        except BaseException as error:
            if grant is not None:
                grant.revoke()
            try:
                if isinstance(error, Error | Gone | WorldError):
                    raise await _unavailable(error, process) from error
                raise
            finally:
                # Last: only now is it known whether the browser still runs and will close the context.
                if grant is not None:
                    _release_access(grant, process)
                    if self._session is None:
                        grant.free()
        session = self._session
        assert session is not None
        if not owns_browser(self._config):
            session.clipboard = Clipboard(process.turns)
        session.tabs.adopt(resumed.tabs, resumed.current)
        process.popups.follow(session.tabs, resumed.origins.watch, spawn=self._spawn)
        session.event_lines[:0] = self._early
        jar = CookieGuard(process, full=hibernated is not None and bool(hibernated.cookies))
        connection = BrowserConnection(session, process, tools, save=partial(_save, seal, jar))
        connection.on_closed.append(session.end)
        if grant is not None:
            connection.on_closed.append(partial(_release_access, grant, process))
        if hibernated is not None:
            connection.restore_report = resumed.report
            # A restored page may renew its login at once, which makes the old snapshot useless.
            connection.unsaved = True
        elif self._view.generation > 1:
            connection.restore_report = RestoreReport(
                lost=", ".join([*(was_on or ()), NEVER_SAVED])
            )
        return connection

    async def _restore(
        self,
        process: BrowserProcess,
        grant: EgressAccess | None,
        hibernated: ContextSnapshot | None,
    ) -> RestoredContext:
        """Open the context, restore the saved state, and make sure that the browser still holds it.

        Raises:
            Gone: The browser lost a process meanwhile, and the restored state with it.
        """
        resumed = await restore_context(
            process.browser,
            hibernated,
            context_options=self._options(process, grant),
            prepare=partial(self._prepare, process, grant),
            seconds=min(RESTORE_SECONDS, self._config.connect_seconds / 3),
        )
        await process.guard()
        if not process.whole:
            with anyio.move_on_after(DEATH_SECONDS):
                await process.lost.wait()
            raise Gone
        return resumed

    def _options(self, process: BrowserProcess, grant: EgressAccess | None) -> dict[str, Any]:
        config = self._config
        options: dict[str, Any] = {
            "viewport": {"width": config.viewport[0], "height": config.viewport[1]},
            **self._device(process),
        }
        wanted: dict[str, Any] = {
            "user_agent": config.user_agent,
            "locale": config.locale,
            "timezone_id": config.timezone,
            # Passed even if empty: a full Chromium grants some by default, such as writing to the clipboard.
            "permissions": list(config.permissions),
            "ignore_https_errors": config.ignore_https_errors or None,
        }
        options |= {key: value for key, value in wanted.items() if value is not None}
        if grant is not None:
            options["proxy"] = {"server": grant.server}
        return options

    def _device(self, process: BrowserProcess) -> Mapping[str, Any]:
        """Return the context options of the configured device."""
        name = self._config.device
        playwright: Any = process.driver.playwright
        known: dict[str, dict[str, Any]] = playwright.devices
        if name is None:
            return {}
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ServiceUnavailable(f"There is no device {name!r} to be like.{hint}")
        return {k: v for k, v in known[name].items() if k != "default_browser_type"}

    async def _prepare(
        self,
        process: BrowserProcess,
        grant: EgressAccess | None,
        context: BrowserContext,
        origins: OriginStorage,
    ) -> None:
        if grant is not None:
            context.on("close", lambda _: grant.free())
        self._session = BrowserSession(
            self._config,
            context,
            generation=self._view.generation,
            files=self._files,
            spawn=self._spawn,
            origins=origins,
            scratch=process.driver.folder,
        )
        if self._config.remote:
            # The browser may have other users: refuse in this context only.
            await refuse_schemes(context)
        else:
            await RequestInterceptor.for_browser(process.browser).refuse_schemes()
        if self._config.init_script is not None:
            try:
                await context.add_init_script(path=self._config.init_script)
            except (OSError, UnicodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no text"
                raise ServiceUnavailable(f"`init_script` cannot be read: {reason}.") from error

    def _note_refusal(self, host: str, line: str) -> None:
        news = self._early
        if self._session is not None:
            news = self._session.event_lines
            if len(self._session.unreached) < EVENT_LINES:
                self._session.unreached[host] = line
        if line not in news and len(news) < EVENT_LINES:
            news.append(line)


def _release_access(grant: EgressAccess, process: BrowserProcess) -> None:
    """Revoke the access of a closed context. Its port stays open if the context may still send requests."""
    grant.revoke()
    if process.lost.is_set():
        grant.free()


async def _unavailable(
    error: Error | Gone | WorldError, process: BrowserProcess
) -> ServiceUnavailable:
    if not await process.check():
        # Until the loss is noticed, the pool would hand out this browser again.
        with anyio.move_on_after(DEATH_SECONDS):
            await process.lost.wait()
    if process.lost.is_set():
        return BrowserDied(f"The browser died while the session was opened: {process.reason}.")
    return ServiceUnavailable(
        f"The browser could not open the session: {in_words(error).rstrip('.')}."
    )


@dataclass(slots=True)
class CookieGuard:
    """Guards against saving a snapshot without cookies after the browser has lost them. Lives as long as the connection.

    `full` tells whether the last snapshot held cookies.
    """

    process: BrowserProcess
    full: bool

    def accept(self, cookies: Sequence[object]) -> None:
        """Check the cookies of a new snapshot.

        Raises:
            ServiceUnavailable: It holds none, the last one did, and it is not known whether the browser lost them.
        """
        if self.full and not cookies and not self.process.known_whole:
            raise ServiceUnavailable(
                "The browser has no cookies any more, and does not say whether it lost them."
            )
        self.full = bool(cookies)


async def _save(
    seal: Encryption | None, jar: CookieGuard, session: BrowserSession, light: bool
) -> Snapshot:
    found = await capture(
        session.context,
        session.tabs.pages,
        session.tabs.place,
        light=light,
        seconds=CHECKPOINT_SECONDS if light else SAVE_SECONDS,
        origins=session.origins,
    )
    jar.accept(found.cookies)
    return replace(found, activities=session.on()).to_snapshot(seal)


__all__ = ["Opening"]
