"""The egress of one browser service: a filtering proxy, started for its first context."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ....sessions.errors import NotAllowed, ServiceUnavailable
from .network_policy import OTHER_SCHEMES, NetworkPolicy, UpstreamProxy

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Route

    from .proxy import EgressAccess, FilteringProxy


OwnerHosts: TypeAlias = Callable[[str], tuple[str, ...] | None]
"""Returns the hosts that the sessions of an owner may reach, None for all."""


class Egress:
    """Connects browser contexts to the sites that a policy allows. Lives as long as its task group."""

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        tasks: TaskGroup,
        proxy: str | None = None,
        remote: bool = False,
        own_ports: set[int] | None = None,
        hosts_of: OwnerHosts | None = None,
    ) -> None:
        """`proxy` is the URL of the proxy of the user's network. `remote` browsers have a network of their own, without
        our proxy. `own_ports` are those that this process serves; no context reaches them. `hosts_of` returns the only hosts
        that the contexts of an owner may reach, besides what the policy says; None for all.
        """
        self.policy = policy
        self._remote = remote
        self._upstream = None if proxy is None else UpstreamProxy.parse(proxy)
        self._tasks = tasks
        self._own_ports = own_ports
        self._hosts_of = hosts_of
        self._starting = anyio.Lock()
        self._proxy: FilteringProxy | None = None

    async def admit(
        self,
        on_refusal: Callable[[str, str], None],
        *,
        owner: str,
        listening: socket.socket | None = None,
    ) -> EgressAccess | None:
        """Return the access of one context of an owner; None for a remote browser.

        `listening` is the socket of the port that the context has already.

        `on_refusal` is called with each host that was refused or not reached, and with a message about it. Revoke the
        access when its session ends, and free it when the context is closed.

        Raises:
            ServiceUnavailable: The proxy did not start, or no port is left.
            NotAllowed: The browser is remote, and the owner may reach some hosts only.
        """
        hosts = None if self._hosts_of is None else partial(self._hosts_of, owner)
        if self._remote:
            if hosts is not None and hosts() is not None:
                raise NotAllowed(
                    "The caller may reach some hosts only (browser_hosts), which cannot be enforced in a browser that "
                    "Statehold does not start."
                )
            return None
        try:
            async with self._starting:
                proxy: FilteringProxy = self._proxy or await self._tasks.start(self._serve)
            return await proxy.admit(
                self.policy,
                on_refused=lambda host, why: on_refusal(
                    host, f"Not allowed to reach {host}: {why}."
                ),
                on_failed=lambda host, why: on_refusal(host, f"Could not reach {host}: {why}."),
                upstream=self._upstream,
                owner=owner,
                listening=listening,
                hosts=hosts,
            )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ServiceUnavailable(f"Could not start the egress proxy: {reason}.") from error

    async def _serve(self, *, task_status: TaskStatus[FilteringProxy]) -> None:
        from .proxy import FilteringProxy

        try:
            async with FilteringProxy(own_ports=self._own_ports) as proxy:
                self._proxy = proxy
                task_status.started(proxy)
                await anyio.sleep_forever()
        finally:
            self._proxy = None


async def refuse_schemes(context: BrowserContext) -> None:
    """Make a context refuse the requests whose scheme the proxy does not see."""
    await context.route(OTHER_SCHEMES, _refuse)


async def _refuse(route: Route) -> None:
    await route.abort()
