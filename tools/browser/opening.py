"""Opening the browser of one session: creating its context and egress access, and restoring and saving its state."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...sessions.errors import ConnectionLost, ServiceUnavailable, StoreUnavailable
from ...sessions.services import RestoreReport, SessionView
from ...sessions.store.sealing.encryption import Encryption
from ...sessions.wording import did_you_mean
from ..processes.workdir import safe_name
from . import errors
from .config import BrowserConfig
from .connection import BrowserConnection
from .devtools.interception import RequestInterceptor
from .devtools.sdk import guid_of
from .devtools.world import WorldError, origin_of
from .egress.egress_service import Egress, refuse_schemes
from .errors import BrowserToolFailed, InvalidSetting, describe_error
from .logins.lending import SessionLogins
from .logins.sites import NO_SITES
from .process.browser_process import ProcessGone, while_alive
from .process.pool import BrowserDied
from .process.user_agent import user_agent_of
from .resumption import ContextResumption
from .secrets.named import NamedSecrets
from .session.clipboard import Clipboard, owns_browser
from .session.files import Files
from .session.host_errors import MAX_HOSTS
from .session.init_page import run_init_pages
from .session.output_folder import OutputFolder
from .session.recording import markdown_log
from .session.recording.markdown_log import CallRecording
from .session.session import BrowserSession
from .snapshot.adoption import ContextFile, ContextPlace, adopt_context
from .snapshot.model import ContextSnapshot
from .snapshot.restore import RestoredContext, attach_context, restore_context
from .snapshot.session_save import CookieGuard, save_session
from .tool import BrowserTool

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Error

    from .egress.proxy import EgressAccess
    from .logins.leases import LoginLease, LoginLeases
    from .process.browser_process import BrowserProcess
    from .process.host import BrowserHost
    from .snapshot.saved_storage import OriginStorage

RESTORE_SECONDS: Final = 10.0
"""Seconds for the current page to load again; the tab exists even if it does not."""
DEATH_SECONDS: Final = 2.0
"""Seconds to wait for the disconnect event of a browser that no longer answers."""

MAX_LOGS: Final = 10
"""The logs of sessions that have room in the output folder if each is as long as it may be."""
SCREEN: Final = (1920, 1080)
"""The screen that pages see, unless the viewport is larger."""

GRANTED: Final = (
    "accelerometer",
    "background-sync",
    "gyroscope",
    "magnetometer",
    "payment-handler",
    "screen-wake-lock",
)
"""The permissions that Chrome grants without a question; a page's copies go to the clipboard of its session."""

NOT_SAVED: Final = (
    "the refs and the order of tabs (nothing is saved or restored of a person's own browser; the session uses the "
    "tabs that are open there now)"
)
NEVER_SAVED: Final = "the tabs and logins (nothing had been saved yet)"
_NO_CONTEXT: Final = "The context of the session did not outlive its server."


class BrowserOpening:
    """The opening of one connection. Used once; the connection owns all that was opened."""

    def __init__(
        self,
        config: BrowserConfig,
        view: SessionView,
        files: Files,
        *,
        secrets: NamedSecrets,
        spawn: Callable[..., None],
        context_file: ContextFile,
        has_local_callers: bool = False,
        leases: LoginLeases | None = None,
    ) -> None:
        self._config = config
        self._leases = leases
        self._logins: SessionLogins | None = None
        self._retaken: list[LoginLease] = []
        """The logins that the session had when it was open last."""
        self._has_local_callers = has_local_callers
        self._secrets = secrets
        self._view = view
        self._files = files
        self._spawn = spawn
        self._context_file = context_file
        self._session: BrowserSession | None = None
        self._early_events: list[str] = []

    async def connection(
        self,
        process: BrowserProcess,
        egress: Egress,
        context_snapshot: ContextSnapshot | None,
        tools: Mapping[str, BrowserTool],
        *,
        initial_state: ContextSnapshot | None = None,
        encryption: Encryption | None,
        lost_activities: Sequence[str] | None = None,
    ) -> BrowserConnection:
        """Open the context and restore the saved state.

        `initial_state` is put into the context of a session that has no saved state yet.
        `lost_activities` lists the activities that ended with the last context, if known, in place of those in the snapshot.

        Raises:
            BrowserDied: The browser ended meanwhile.
            ServiceUnavailable: The configuration asks for more than the browser supports, or the browser refused.
        """
        if context_snapshot is not None and lost_activities is not None:
            context_snapshot = replace(context_snapshot, activities=list(lost_activities))
        if context_snapshot is not None and self._leases is not None:
            context_snapshot = self._leases.sites.leave_out(context_snapshot)
        access = await egress.admit(self._add_refusal, owner=self._view.owner)
        restored_context = await self._open(
            process,
            access,
            partial(self._restore, process, access, context_snapshot or initial_state),
        )
        had_cookies = context_snapshot is not None and bool(context_snapshot.cookies)
        connection = self._connected(
            process, access, restored_context, tools, encryption, had_cookies
        )
        await self._hold_port(connection, process, access)
        if self._config.is_attached:
            context_snapshot = None
        if context_snapshot is not None:
            report = restored_context.report
            connection.session.secrets.named.typed.restore(context_snapshot.typed)
            # Addresses of pages may hold secrets.
            connection.restore_report = replace(report, lost=self._secrets.mask(report.lost))
            # A restored page may renew its login at once, which makes the old snapshot useless.
            connection.unsaved = True
        elif initial_state is not None and (refused := restored_context.report.lost):
            connection.session.event_lines.append(f"Not taken from `storage_state`: {refused}")
        if context_snapshot is None and self._view.generation > 1:
            never_saved = NOT_SAVED if self._config.is_attached else NEVER_SAVED
            connection.restore_report = RestoreReport(
                lost=", ".join([*(lost_activities or ()), never_saved])
            )
        try:
            session = connection.session
            await run_init_pages(
                self._config.init_page,
                session.tabs,
                report=session.listener_errors.add,
                mask=self._secrets.mask,
            )
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def resumed_connection(
        self,
        process: BrowserProcess,
        egress: Egress,
        place: ContextPlace,
        context_snapshot: ContextSnapshot | None,
        tools: Mapping[str, BrowserTool],
        *,
        encryption: Encryption | None,
    ) -> BrowserConnection:
        """Take over the context of a server that ended; see adoption.py.

        Raises:
            ConnectionLost: It is gone.
            BrowserDied, ServiceUnavailable: As connection() does.
        """
        if place.context not in process.unclaimed_contexts or process.host is None:
            raise ConnectionLost(_NO_CONTEXT)
        listening = socket.socket(fileno=await process.host.fetch(place.port_name))
        context = process.unclaimed_contexts.pop(place.context, None)
        if context is None:
            listening.close()
            raise ConnectionLost(_NO_CONTEXT)
        access = await egress.admit(self._add_refusal, owner=self._view.owner, listening=listening)
        if self._leases is not None and access is not None:
            # Before the first request of a page: another session may have the login by now.
            access.shut(self._leases.sites.targets)
        snapshot, record = context_snapshot or ContextSnapshot(), self._context_file.read()
        prepare = partial(self._prepare, process, access, has_newer_logins=True)
        work = partial(adopt_context, context, snapshot, record, prepare=prepare)
        restored_context = await self._open(process, access, work)
        connection = self._connected(
            process, access, restored_context, tools, encryption, bool(snapshot.cookies)
        )
        self._keep(connection, process.host, place)
        record.resume(connection.session)
        connection.unsaved = True
        if record.activities:
            await context.set_offline(False)
            lines = connection.session.event_lines
            lines.append(f"Ended when the server started again: {', '.join(record.activities)}.")
        return connection

    async def _hold_port(
        self, connection: BrowserConnection, process: BrowserProcess, access: EgressAccess | None
    ) -> None:
        """Prepare that a later server takes the context over, and have the keeper hold the port of its access."""
        host = process.host
        if host is None or not host.outlives_process or access is None:
            return
        place = ContextPlace(host.address, guid_of(connection.session.context), access.port)
        if await host.hold(place.port_name, access.descriptor):
            self._keep(connection, host, place)

    def _keep(self, connection: BrowserConnection, host: BrowserHost, place: ContextPlace) -> None:
        """Let a later server take the context over, until it is closed."""
        resumption = ContextResumption(place, self._context_file)

        def drop_port(_: BrowserContext) -> None:
            # A driver that detaches closes its contexts, but not those of the browser.
            if not resumption.is_left:
                self._spawn(host.drop, place.port_name)

        connection.session.context.on("close", drop_port)
        connection.outlive(resumption)

    async def _open(
        self,
        process: BrowserProcess,
        access: EgressAccess | None,
        work: Callable[[], Awaitable[RestoredContext]],
    ) -> RestoredContext:
        """Run the work that opens a context or takes it over. Raises as connection() does."""
        if access is not None:
            self._files.pause_traffic = access.bandwidth.pause
        try:
            return await while_alive(work, process.lost, process.check, self._spawn)
        except BaseException as error:
            if access is not None:
                access.revoke()
            try:
                await self._abandon_logins()
                if isinstance(error, errors.Error | ProcessGone | WorldError):
                    raise await _explain_failure(error, process) from error
                raise
            finally:
                # Last: only now is it known whether the browser still runs and will close the context.
                if access is not None:
                    _release_access(access, process)
                    if self._session is None:
                        access.free()

    def _connected(
        self,
        process: BrowserProcess,
        access: EgressAccess | None,
        restored_context: RestoredContext,
        tools: Mapping[str, BrowserTool],
        encryption: Encryption | None,
        had_cookies: bool,
    ) -> BrowserConnection:
        """Return the connection to a context that was opened or taken over."""
        session = self._session
        assert session is not None
        if not owns_browser(self._config):
            session.clipboard = Clipboard(process.clipboard_turns)
        session.tabs.adopt(restored_context.tabs, restored_context.current)
        process.popups.follow(session.tabs, restored_context.origins.watch, spawn=self._spawn)
        session.host_errors.events[:0] = self._early_events
        cookie_guard = CookieGuard(process, had_cookies=had_cookies)
        sites = NO_SITES if self._leases is None else self._leases.sites
        save = partial(save_session, encryption, cookie_guard, sites)
        connection = BrowserConnection(session, process, tools, save=save, logins=self._logins)
        connection.on_closed.append(session.end)
        if self._config.save_session:
            connection.log = log = self._call_log()
            connection.on_closed.append(log.close)
        if access is not None:
            connection.on_closed.append(partial(_release_access, access, process))
        return connection

    def _call_log(self) -> CallRecording:
        config = self._config
        largest, folder = config.download_bytes, config.output_folder
        if folder is None:
            return CallRecording(self._files.folder / markdown_log.NAME, largest=largest)
        if config.output_max_size is not None:
            largest = min(largest, config.output_max_size // MAX_LOGS)
        return CallRecording(
            folder / f"session-{safe_name(self._view.id)}.md",
            largest=largest,
            output=OutputFolder(folder, config.output_max_size),
        )

    async def _restore(
        self,
        process: BrowserProcess,
        access: EgressAccess | None,
        context_snapshot: ContextSnapshot | None,
    ) -> RestoredContext:
        """Open the context, restore the saved state, and make sure that the browser still holds it.

        Raises:
            Gone: The browser lost a process meanwhile, and the restored state with it.
        """
        if self._config.is_attached:
            return await attach_context(
                process.browser, prepare=partial(self._prepare, process, access)
            )
        restored_context = await restore_context(
            process.browser,
            await self._retake_logins(context_snapshot),
            context_options=self._options(process, access),
            prepare=partial(self._prepare, process, access),
            seconds=min(RESTORE_SECONDS, self._config.connect_seconds / 3),
        )
        await process.guard()
        if not process.whole:
            with anyio.move_on_after(DEATH_SECONDS):
                await process.lost.wait()
            raise ProcessGone
        return restored_context

    async def _retake_logins(self, state: ContextSnapshot | None) -> ContextSnapshot | None:
        """Take the logins again that the session had, and return the saved context with them and no other ones.

        Raises:
            ServiceUnavailable: The store does not answer.
        """
        if self._leases is None:
            return state
        try:
            self._retaken, lost = await self._leases.retake(self._view)
        except StoreUnavailable as error:
            raise ServiceUnavailable(f"The logins of the session are not there: {error}") from error
        self._early_events += [f"The login {name} is no more with this session." for name in lost]
        values = [lease.value for lease in self._retaken]
        return self._leases.sites.replace_in(state, values)

    async def _abandon_logins(self) -> None:
        """Give back the logins of a context that failed; its pages may have changed them."""
        for lease in self._retaken:
            assert self._leases is not None
            with anyio.CancelScope(shield=True), suppress(StoreUnavailable):
                await self._leases.give_back(lease, None, is_sure=False, stays=True)
            self._leases.drop(lease)

    def _options(self, process: BrowserProcess, access: EgressAccess | None) -> dict[str, Any]:
        config = self._config
        width, height = config.viewport
        viewport = {"width": width, "height": height}
        options: dict[str, Any] = {
            "viewport": viewport,
            # By default the screen would be smaller than the window around the viewport.
            "screen": {"width": max(width, SCREEN[0]), "height": max(height, SCREEN[1])},
            **self._device(process),
        }
        settings: dict[str, Any] = {
            "viewport": viewport if "viewport" in config.model_fields_set else None,
            "user_agent": config.user_agent or user_agent_of(process.browser),
            "locale": config.locale,
            "timezone_id": config.timezone,
            "device_scale_factor": config.device_scale_factor,
            "permissions": [*GRANTED, *config.permissions],
            "ignore_https_errors": config.ignore_https_errors or None,
            "http_credentials": self._http_credentials() or None,
        }
        options |= {key: value for key, value in settings.items() if value is not None}
        if access is not None:
            options["proxy"] = {"server": access.server}
        return options

    def _http_credentials(self) -> list[dict[str, str | None]]:
        """Return the configured logins by HTTP as Playwright takes them.

        Raises:
            InvalidSetting: One has a secret that is not for its site.
        """
        logins: list[dict[str, str | None]] = []
        for address, login in self._config.http_credentials.items():
            user, _, password = login.partition(":")
            try:
                user, password = (
                    self._secrets.insert(part, address, is_typed=True) for part in (user, password)
                )
            except BrowserToolFailed as error:
                raise InvalidSetting(f"`http_credentials` cannot be used: {error}") from None
            logins.append({"username": user, "password": password, "origin": origin_of(address)})
        return logins

    def _device(self, process: BrowserProcess) -> Mapping[str, Any]:
        """Return the context options of the configured device."""
        name = self._config.emulated_device
        playwright: Any = process.driver.playwright
        devices: dict[str, dict[str, Any]] = playwright.devices
        if name is None:
            return {}
        if name not in devices:
            hint = did_you_mean(name, devices)
            raise InvalidSetting(f"There is no device {name!r} to be like.{hint}")
        return {k: v for k, v in devices[name].items() if k != "default_browser_type"}

    async def _prepare(
        self,
        process: BrowserProcess,
        access: EgressAccess | None,
        context: BrowserContext,
        origins: OriginStorage,
        *,
        has_newer_logins: bool = False,
    ) -> None:
        if access is not None:
            context.on("close", lambda _: access.free())
        self._session = BrowserSession(
            self._config,
            context,
            generation=self._view.generation,
            files=self._files,
            spawn=self._spawn,
            origins=origins,
            scratch=process.folder,
            secrets=self._secrets,
            has_local_callers=self._has_local_callers,
            has_touch=self._device(process).get("has_touch", False),
        )
        if self._leases is not None:
            if has_newer_logins:
                await self._retake_logins(None)
            self._logins = SessionLogins(self._leases, self._view, self._session, access)
            for lease in self._retaken:
                self._logins.admit(lease, is_newer=has_newer_logins)
            if has_newer_logins:
                await self._logins.clear_others()
        if self._config.is_attached:
            return
        if self._config.remote:
            # The browser may have other users: refuse in this context only.
            await refuse_schemes(context)
        else:
            await RequestInterceptor.for_browser(process.browser).refuse_schemes()
        for path in self._config.init_script:
            try:
                await context.add_init_script(path=path)
            except (OSError, UnicodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no text"
                raise InvalidSetting(f"`init_script` cannot be read: {reason}.") from error

    def _add_refusal(self, host: str, line: str) -> None:
        if self._session is not None:
            self._session.host_errors.note(host, line)
        elif line not in self._early_events and len(self._early_events) < MAX_HOSTS:
            self._early_events.append(line)


def _release_access(access: EgressAccess, process: BrowserProcess) -> None:
    """Revoke the access of a closed context. Its port stays open if the context may still send requests.

    The next process listens at the port of a context that it takes over.
    """
    access.revoke()
    if process.lost.is_set():
        access.free()


async def _explain_failure(
    error: Error | ProcessGone | WorldError, process: BrowserProcess
) -> ServiceUnavailable:
    if not await process.check():
        # Until the loss is noticed, the pool would hand out this browser again.
        with anyio.move_on_after(DEATH_SECONDS):
            await process.lost.wait()
    if process.lost.is_set():
        return BrowserDied(f"The browser died while the session was opened: {process.reason}.")
    return ServiceUnavailable(
        f"The browser could not open the session: {describe_error(error).rstrip('.')}."
    )
