"""The way out of the contexts of one service: the filtering proxy, which is started with the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ....sessions.errors import ServiceUnavailable
from ..config import BrowserConfig
from ..session.files import FILES_OF_SESSION
from .policy import OTHER_SCHEMES, NetworkPolicy
from .upstream import UpstreamProxy

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Route

    from .proxy import FilteringProxy, Grant


class Outlet:
    """Lets contexts out as the configuration allows. Lives as long as the task group it is given."""

    def __init__(
        self,
        config: BrowserConfig,
        *,
        private: bool,
        tasks: TaskGroup,
        port: int | None = None,
    ) -> None:
        """`port`: where our own callers come in, which nobody is let out to."""
        self.policy = NetworkPolicy(
            allow=config.allow,
            block=config.block,
            private=private,
            bytes_per_second=config.bytes_per_second,
            response_bytes=config.download_bytes * FILES_OF_SESSION,
        )
        self._config = config
        self._upstream = None if config.proxy is None else UpstreamProxy.parse(config.proxy)
        self._tasks = tasks
        self._port = port
        self._starting = anyio.Lock()
        self._proxy: FilteringProxy | None = None

    async def admit(self, tell: Callable[[str, str], None], *, owner: str) -> Grant | None:
        """Let a context of an owner out, None when its browser runs elsewhere, where the network is another one.

        `tell` is called with each host that was refused or could not be reached, and with that in words. Revoke it when its
        session ends, and free it when the context is closed.

        Raises:
            ServiceUnavailable: there is no port left for it.
        """
        if self._config.elsewhere:
            return None
        try:
            async with self._starting:
                proxy: FilteringProxy = self._proxy or await self._tasks.start(self._serve)
            return await proxy.admit(
                self.policy,
                on_refused=lambda host, why: tell(host, f"Not allowed to reach {host}: {why}."),
                on_failed=lambda host, why: tell(host, f"Could not reach {host}: {why}."),
                upstream=self._upstream,
                owner=owner,
            )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ServiceUnavailable(f"The browser has no way out: {reason}.") from error

    async def _serve(self, *, task_status: TaskStatus[FilteringProxy]) -> None:
        from .proxy import FilteringProxy

        try:
            async with FilteringProxy(port=self._port) as proxy:
                self._proxy = proxy
                task_status.started(proxy)
                await anyio.sleep_forever()
        finally:
            self._proxy = None


async def refuse_schemes(context: BrowserContext) -> None:
    """Have a context refuse every request whose scheme the proxy does not see. All others do not pass here."""
    await context.route(OTHER_SCHEMES, _refuse)


async def _refuse(route: Route) -> None:
    await route.abort()


__all__ = ["Outlet", "refuse_schemes"]
