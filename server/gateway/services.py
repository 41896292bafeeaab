"""The configured services of a process, each built by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ...tools.browser.config import BrowserConfig
from ...tools.processes.keeper_command import KeptChild
from ...tools.processes.ledger import Ledger
from ...tools.upstream.service import ServiceChangeCallback, UpstreamService
from ..config.model import Config, ServiceConfig

if TYPE_CHECKING:
    from ...tools.browser.egress.service import OwnerHosts
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
) -> AnyService:
    """Return the service of these settings.

    `has_local_callers`: every caller is a user of this machine, so by default browsers may reach private addresses. They
    never reach `own_ports`, on which this process listens, and the sessions of an owner reach only its `hosts_of`,
    unless that is None. `on_changed` is called when a connection announces a change.
    """
    data = None if config.ephemeral else config.data
    call_seconds = config.timeouts.call
    if isinstance(settings, BrowserConfig):
        # Imported here: without a browser service it would take a tenth of the start of the process.
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
        )
    return UpstreamService(
        name,
        settings,
        data=data,
        ledger=ledger,
        call_seconds=call_seconds,
        inherit_env=config.inherit_env,
        on_changed=on_changed,
    )


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
