"""The way out of every browser context: a proxy of this process that lets through what the context's policy allows.

Contexts tell themselves apart by credentials. Requests are decided one by one, so a redirect is judged as any request is;
names are resolved here, and a connection is opened only to an address that was judged, so a name that changes its address
gains nothing. What runs inside a tunnel is seen by its two ends only.
"""

from __future__ import annotations

import hmac
import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup

from ...sessions.clock import Clock, SystemClock
from .egress.client import Client, Patience
from .egress.dialer import Dialer
from .egress.grant import Grant, GrantStatistics, Told
from .egress.lines import close
from .egress.resolver import Resolver
from .egress.upstream import UpstreamProxy
from .policy import NetworkPolicy

logger = logging.getLogger(__name__)

_OUT_OF_FILES_SECONDS = 0.1


class FilteringProxy:
    """Listens on a loopback port of its own while entered; one serves a whole process.

    Leaving it ends every connection at once. Enter and leave it in the same task.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        resolver: Resolver | None = None,
        connections: int = 2048,
        connections_per_grant: int = 128,
        connect_seconds: float = 30.0,
        patience: Patience | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._dialer = Dialer(resolver or Resolver(self._clock), seconds=connect_seconds)
        self._most = connections
        self._per_grant = connections_per_grant
        self._patience = patience or Patience()
        self._grants: dict[str, Grant] = {}
        self._open = 0
        self._server: str | None = None
        self._exit = AsyncExitStack()

    @property
    def server(self) -> str:
        """The address, as `http://127.0.0.1:PORT`."""
        if self._server is None:
            raise RuntimeError("the proxy is not listening")
        return self._server

    @property
    def connections(self) -> int:
        """How many connections of browsers are open."""
        return self._open

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            bound = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
            (listener,) = bound.listeners
            assert isinstance(listener, SocketListener)
            stack.push_async_callback(listener.aclose)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            self._server = f"http://127.0.0.1:{bound.extra(SocketAttribute.local_port)}"
            tasks.start_soon(self._accept, listener, tasks)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server = None
        for grant in list(self._grants.values()):
            grant.revoke()
        # Not told of an error of its user's, the task group does not wrap it.
        await self._exit.aclose()

    def admit(
        self,
        policy: NetworkPolicy,
        *,
        on_refused: Told | None = None,
        on_failed: Told | None = None,
        upstream: UpstreamProxy | None = None,
    ) -> Grant:
        """Let a context out. `server`, `username` and `password` of the grant are what Playwright's `proxy` option takes.

        `on_refused(host, reason)` is called for each request that the policy refuses, `on_failed` for each whose site
        cannot be reached: for a tunnel a browser does not tell why.
        """
        grant = Grant(
            self.server,
            policy,
            clock=self._clock,
            connections=self._per_grant,
            upstream=upstream,
            on_refused=on_refused,
            on_failed=on_failed,
            on_revoked=self._forget,
        )
        self._grants[grant.username] = grant
        return grant

    def _forget(self, grant: Grant) -> None:
        self._grants.pop(grant.username, None)

    def _find(self, username: str, password: str) -> Grant | None:
        grant = self._grants.get(username)
        if grant is None or not hmac.compare_digest(grant.password.encode(), password.encode()):
            return None
        return grant

    async def _accept(self, listener: SocketListener, tasks: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:
                # No file descriptors left, or the browser gave up: neither is the end.
                await anyio.sleep(_OUT_OF_FILES_SECONDS)
                continue
            if self._open >= self._most:
                await close(stream)
                continue
            self._open += 1
            tasks.start_soon(self._serve, stream)

    async def _serve(self, stream: SocketStream) -> None:
        client = Client(
            stream,
            find=self._find,
            dialer=self._dialer,
            clock=self._clock,
            patience=self._patience,
        )
        try:
            await client.serve()
        except Exception:
            logger.exception("a connection of the filtering proxy failed")
        finally:
            self._open -= 1


__all__ = ["FilteringProxy", "Grant", "GrantStatistics", "Patience", "UpstreamProxy"]
