"""The services of a process: the configured ones, each built by its kind, and those that are added while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ...sessions.clock import Clock
from ...tools.browser.config import BrowserConfig
from ...tools.logins.audit import LoginAudit
from ...tools.logins.config import BrowserLoginConfig
from ...tools.logins.keys import Keys
from ...tools.pins.pins import Pins
from ...tools.processes.keeper_command import KeptChild
from ...tools.processes.ledger import Ledger
from ...tools.upstream.oauth.logins import ServiceLogins
from ...tools.upstream.sandbox import ServiceSandboxes
from ...tools.upstream.service import ServiceChangeCallback, UpstreamService
from ..config.model import Config, ServiceConfig

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore
    from ...tools.browser.egress.egress_service import OwnerHosts
    from ...tools.browser.logins.leases import LoginLeases
    from ...tools.browser.service import BrowserService

AnyService: TypeAlias = "UpstreamService | BrowserService"


def service_of(
    name: str,
    settings: ServiceConfig,
    config: Config,
    ledger: Ledger,
    *,
    has_local_callers: bool,
    own_ports: set[int] | None = None,
    hosts_of: OwnerHosts | None = None,
    on_changed: ServiceChangeCallback | None = None,
    logins: ServiceLogins | None = None,
    keys: Keys | None = None,
    pins: Pins | None = None,
    browser_logins: LoginLeases | None = None,
) -> AnyService:
    """Return the service of these settings.

    `has_local_callers`: every caller is a user of this machine, so by default browsers may reach private addresses. They
    never reach `own_ports`, on which this process listens, and the sessions of an owner reach only its `hosts_of`,
    unless that is None. `on_changed` is called when a connection announces a change.
    """
    data = None if config.ephemeral else config.data
    call_seconds = config.timeouts.call
    if isinstance(settings, BrowserConfig):
        # Imported here: without a browser service it would take a twentieth of the start of the process.
        from ...tools.browser.service import BrowserService

        return BrowserService(
            name,
            settings,
            data=data,
            ledger=ledger,
            call_seconds=call_seconds,
            has_local_callers=has_local_callers,
            own_ports=own_ports,
            hosts_of=hosts_of,
            logins=browser_logins,
        )
    return UpstreamService(
        name,
        settings,
        data=data,
        ledger=ledger,
        call_seconds=call_seconds,
        inherit_env=config.inherit_env,
        on_changed=on_changed,
        logins=logins,
        keys=keys,
        pins=pins,
        sandboxes=ServiceSandboxes(
            name,
            settings.sandbox,
            caches=None if data is None else data / "caches",
            private=config.private_paths,
        ),
    )


def browser_logins_of(
    config: Config,
    store: SQLStore,
    clock: Clock,
    audit: LoginAudit,
    groups_of: Callable[[str], Sequence[str]],
) -> LoginLeases | None:
    """Return the logins that the sessions of a process lend from each other; None if the configuration has none."""
    settings = {
        name: each for name, each in config.logins.items() if isinstance(each, BrowserLoginConfig)
    }
    if not settings:
        return None
    from ...tools.browser.logins.leases import LoginLeases

    return LoginLeases(settings, store, clock, audit, groups_of=groups_of)


async def forget(services: Mapping[str, AnyService], session_id: str) -> None:
    """Remove the files that the services keep for a session that was deleted from the store."""
    for service in list(services.values()):
        await service.forget(session_id)


def sessions_of(child: KeptChild, services: Mapping[str, AnyService]) -> list[str]:
    """Return the sessions that may have a connection to a child of the keeper."""
    service = services.get(child.service)
    if service is None or isinstance(service, UpstreamService):
        return [child.session]
    return service.recorded_sessions()


class _HeldService:
    """An added service while its task holds it open."""

    def __init__(self) -> None:
        self.leaving = anyio.Event()
        self.closed = anyio.Event()


class AddedServices:
    """Holds added services open, each in a task of its own, until the gateway leaves it."""

    def __init__(self) -> None:
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._held: list[_HeldService] = []

    async def __aenter__(self) -> Self:
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        self._exit.callback(self._leave)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit.aclose()

    def _leave(self) -> None:
        for held in self._held:
            held.leaving.set()

    @asynccontextmanager
    async def open(self, service: object) -> AsyncGenerator[None]:
        """Open a service that has to be opened. An error while it opens is raised here.

        It stays open after the block. If the block raises, it is closed again before this is left, even if the caller is
        cancelled.
        """
        if not isinstance(service, AbstractAsyncContextManager):
            yield
            return
        assert self._tasks is not None
        held = _HeldService()
        await self._tasks.start(self._hold, service, held)  # pyright: ignore[reportUnknownArgumentType]
        self._held.append(held)
        try:
            yield
        except BaseException:
            self._held.remove(held)
            held.leaving.set()
            with anyio.CancelScope(shield=True):
                await held.closed.wait()
            raise

    async def _hold(
        self,
        service: AbstractAsyncContextManager[object],
        held: _HeldService,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        try:
            async with service:
                task_status.started()
                await held.leaving.wait()
        finally:
            held.closed.set()
