"""What one browser context was given: a port of the proxy, a policy, and the connections that use them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from ....sessions.clock import Clock
from ..policy import NetworkPolicy
from .bandwidth import Bandwidth
from .refusal import Refused, too_many
from .upstream import UpstreamProxy

logger = logging.getLogger(__name__)

Told: TypeAlias = Callable[[str, str], None]
"""Called with a host, with its port where that is not the usual one, and a reason."""

_LOOKUPS = 8


@dataclass(frozen=True, slots=True)
class GrantStatistics:
    """What has happened so far. Bytes are those of sites, heads and TLS included."""

    connections: int
    refused: int
    failed: int
    sent: int
    received: int


class Grant:
    """The right of one context to use the proxy, from `FilteringProxy.admit` until `revoke`."""

    def __init__(
        self,
        server: str,
        policy: NetworkPolicy,
        *,
        clock: Clock,
        connections: int,
        upstream: UpstreamProxy | None,
        on_refused: Told | None,
        on_failed: Told | None,
        on_revoked: Callable[[Grant], None],
    ) -> None:
        self.server = server
        """The address, as `http://127.0.0.1:PORT`: what the `server` of Playwright's `proxy` option takes."""
        self.policy = policy
        self.upstream = upstream
        self.bandwidth = Bandwidth(policy.bytes_per_second, clock)
        self.lookups = anyio.Semaphore(_LOOKUPS)
        """One page with many names must not take all lookups of the process."""
        self.sent = 0
        self.received = 0
        self._refused = 0
        self._failed = 0
        self._most = connections
        self._on_refused = on_refused
        self._on_failed = on_failed
        self._on_revoked = on_revoked
        self._scopes: set[anyio.CancelScope] = set()
        self.listening = anyio.CancelScope()
        """What its port is open in."""

    def __repr__(self) -> str:
        return f"<Grant {self.server} connections={len(self._scopes)}>"

    def revoke(self) -> None:
        """End its connections at once and accept no more. May be called again."""
        self._on_revoked(self)
        self.listening.cancel()
        for scope in self._scopes:
            scope.cancel()

    def statistics(self) -> GrantStatistics:
        return GrantStatistics(
            len(self._scopes), self._refused, self._failed, self.sent, self.received
        )

    @contextmanager
    def connection(self, scope: anyio.CancelScope) -> Generator[Refused | None]:
        """Count a connection, which revoking cancels. Yields why it is one too many, None when it is not."""
        crowded = self._most <= len(self._scopes)
        self._scopes.add(scope)
        try:
            yield _crowded(self._most) if crowded else None
        finally:
            self._scopes.discard(scope)

    def note(self, refused: Refused) -> None:
        """Count a request that got no answer of its site, and tell whoever asked to be told."""
        if refused.host is None:
            return
        if refused.by_policy:
            self._refused += 1
        else:
            self._failed += 1
        told = self._on_refused if refused.by_policy else self._on_failed
        if told is None:
            return
        try:
            told(refused.host, refused.reason)
        except Exception:
            logger.exception("telling of a refused request failed")


def _crowded(most: int) -> Refused:
    return too_many(f"this session has {most} connections open already")


__all__ = ["Grant", "GrantStatistics", "Told"]
