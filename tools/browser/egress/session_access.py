"""Whether a session may connect to an address, and the answer when it may not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from ....sessions.clock import Clock
from .bandwidth import Bandwidth
from .network_policy import NetworkPolicy, Target, UpstreamProxy
from .socks import SocksReply


class EgressRefused(Exception):
    """Raised when the proxy opens no connection. The reason holds no secrets; `host` is None if no host is to blame."""

    def __init__(self, reply: SocksReply, reason: str, *, host: str | None = None) -> None:
        super().__init__(reason)
        self.reply = reply
        self.reason = reason
        self.host = host

    @property
    def by_policy(self) -> bool:
        return self.reply is SocksReply.NOT_ALLOWED


def not_allowed(host: object, reason: str) -> EgressRefused:
    """Return the refusal of a connection by the policy."""
    return EgressRefused(SocksReply.NOT_ALLOWED, reason, host=str(host))


def unreachable(host: object, reason: str) -> EgressRefused:
    """Return the refusal for a site that cannot be connected to."""
    return EgressRefused(SocksReply.HOST_UNREACHABLE, reason, host=str(host))


def too_many(reason: str) -> EgressRefused:
    """Return the refusal of a connection because of too many; a later one may succeed."""
    return EgressRefused(SocksReply.FAILED, reason)


logger = logging.getLogger(__name__)

RefusalCallback: TypeAlias = Callable[[str, str], None]
"""Called with a host (and its port, unless it is the default) and a reason."""

HostsCallback: TypeAlias = Callable[[], tuple[str, ...] | None]
"""Returns the hosts that the caller may reach now, None for all."""

_MAX_LOOKUPS = 8


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    """The counters so far. Bytes are those exchanged with sites, heads and TLS included."""

    connections: int
    refusals: int
    failures: int
    bytes_sent: int
    bytes_received: int


class EgressAccess:
    """The right of a context to use the proxy, from `FilteringProxy.admit` until `revoke`; its port is kept until `free`."""

    def __init__(
        self,
        port: int,
        policy: NetworkPolicy,
        *,
        descriptor: int,
        owner: str,
        clock: Clock,
        connections: int,
        upstream: UpstreamProxy | None,
        on_refused: RefusalCallback | None,
        on_failed: RefusalCallback | None,
        on_freed: Callable[[EgressAccess], None],
        hosts: HostsCallback | None = None,
    ) -> None:
        self.port = port
        self.descriptor = descriptor
        """The descriptor of the listening socket, valid until free()."""
        self.owner = owner
        self.server = f"socks5://127.0.0.1:{port}"
        """The address, as `socks5://127.0.0.1:PORT`, for the `server` of Playwright's `proxy` option."""
        self._policy = policy
        self._hosts = hosts
        self.upstream = upstream
        self.bandwidth = Bandwidth(policy.bytes_per_second, clock)
        self.lookups = anyio.Semaphore(_MAX_LOOKUPS)
        """Limits the lookups of this access: a page with many names must not take all lookups of the process."""
        self.bytes_sent = 0
        self.bytes_received = 0
        self._refusals = 0
        self._failures = 0
        self._limit = connections
        self._on_refused = on_refused
        self._on_failed = on_failed
        self._on_freed = on_freed
        self.revoked = False
        self.listening = anyio.CancelScope()
        """The scope that the port listens in; cancelling it closes the port."""
        self._scopes: set[anyio.CancelScope] = set()
        self._counted_scopes: dict[anyio.CancelScope, Target] = {}
        """The connections that asked for a site, with the site."""
        self._shut: frozenset[tuple[str, int]] = frozenset()

    def __repr__(self) -> str:
        return f"<EgressAccess {self.server} connections={len(self._counted_scopes)}>"

    @property
    def policy(self) -> NetworkPolicy:
        """The policy, with the hosts that the caller may reach now."""
        if self._hosts is not None and (hosts := self._hosts()) != self._policy.hosts:
            self._policy = self._policy.limited_to(hosts)
        return self._policy

    def shut(self, sites: Iterable[Target]) -> None:
        """Let no connection reach these sites, in place of those given before; open ones to them end at once."""
        self._shut = frozenset((site.host, site.port) for site in sites)
        for scope, target in self._counted_scopes.items():
            if (target.host, target.port) in self._shut:
                scope.cancel()

    def refusal(self, target: Target) -> str | None:
        """Return why a host is refused before its name is resolved, or None."""
        if (target.host, target.port) in self._shut:
            return f"{target} has a login that this session does not have; call login_use"
        return self.policy.name_refusal(target)

    def revoke(self) -> None:
        """End its connections at once and serve no more. May be called again.

        The port stays open, so that late requests of a context that closes slowly reach no other process.
        """
        self.revoked = True
        for scope in self._scopes:
            scope.cancel()

    def free(self) -> None:
        """Revoke the access and close its port. Call it when nothing can use the port. May be called again."""
        self.revoke()
        self.listening.cancel()
        self._on_freed(self)

    def statistics(self) -> AccessStatistics:
        return AccessStatistics(
            len(self._counted_scopes),
            self._refusals,
            self._failures,
            self.bytes_sent,
            self.bytes_received,
        )

    @contextmanager
    def connection(self, scope: anyio.CancelScope) -> Generator[None]:
        """Register a connection for the block; revoke() cancels its scope."""
        if self.revoked:
            scope.cancel()
        self._scopes.add(scope)
        try:
            yield
        finally:
            self._scopes.discard(scope)
            self._counted_scopes.pop(scope, None)

    def count(self, scope: anyio.CancelScope, target: Target) -> None:
        """Count a connection that asks for a site.

        Raises:
            Refused: There are too many; there may be room for it later.
        """
        if scope not in self._counted_scopes and len(self._counted_scopes) >= self._limit:
            raise too_many(f"this session has {self._limit} connections open already")
        self._counted_scopes[scope] = target

    def note(self, refusal: EgressRefused) -> None:
        """Count a connection that was not opened, and call `on_refused` or `on_failed`."""
        if refusal.host is None:
            return
        if refusal.by_policy:
            self._refusals += 1
        else:
            self._failures += 1
        callback = self._on_refused if refusal.by_policy else self._on_failed
        if callback is None:
            return
        try:
            callback(refusal.host, refusal.reason)
        except Exception:
            logger.exception("the callback for a refused connection failed")
