"""Token buckets: the rates of the calls of principals in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ..errors import NotAllowed, SessionLimit
from ..owned_map import BoundedMap
from .limits import EffectiveLimits, PrincipalLimits
from .rules import Rate

MAX_KEPT: Final = 10_000
"""Buckets that are kept; beyond that, the one used longest ago is dropped."""


@dataclass(slots=True)
class TokenBucket:
    """The calls that a principal may begin now, as of a time."""

    tokens: float
    at: float


class CallLimits:
    """Admits calls within the limits of their principals. Every method is synchronous; `now` returns seconds."""

    def __init__(self, limits: PrincipalLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._buckets = BoundedMap[tuple[str, str], TokenBucket](MAX_KEPT)

    def admit(self, owner: str, caller: str, service: str, tool: str, in_flight: int) -> None:
        """Check a call in a session of a principal, and take the tokens of its caller, which has `in_flight` calls.

        Raises:
            NotAllowed: the owner may not use the service.
            SessionLimit: the caller has too many calls in flight, or calls too often. No token was taken.
        """
        limits = self._limits.of(owner)
        if not limits.allows_service(service):
            raise service_refused(limits, service)
        if caller != owner:
            limits = self._limits.of(caller)
        most = limits.calls_in_flight
        if most and in_flight >= self._limits.share(most):
            raise SessionLimit(
                f"The caller has {in_flight} calls in flight, the most allowed ({limits.name('calls_in_flight')}: {most}"
                f"{self._shared()}).",
                retry_after=1.0,
                recovery="Wait for the other calls, then try again.",
            )
        rates = _rates_of(limits, service, tool)
        if rates:
            self._take(caller, limits, rates)

    def _take(self, caller: str, limits: EffectiveLimits, rates: dict[str, Rate]) -> None:
        now = self._now()
        buckets = {key: self._filled((caller, key), rate, now) for key, rate in rates.items()}
        for key, bucket in buckets.items():
            if bucket.tokens >= 1:
                continue
            rate, limit = rates[key], "tool_rates" if key else "rate"
            what = f"{limit}, {key}" if key else limit
            name = limits.name(limit).replace(limit, what, 1)
            raise SessionLimit(
                f"The caller calls too often ({name}: {rate}{self._shared()}).",
                retry_after=round((1 - bucket.tokens) / self._per_second(rate), 3),
                recovery="Wait for retry_after_seconds, then try again.",
            )
        for bucket in buckets.values():
            bucket.tokens -= 1

    def _filled(self, key: tuple[str, str], rate: Rate, now: float) -> TokenBucket:
        """Return a bucket with the tokens that it has got since the last call."""
        capacity = self._limits.share(rate.capacity)
        bucket = self._buckets.get(key) or TokenBucket(capacity, now)
        self._buckets[key] = bucket
        tokens = bucket.tokens + max(0.0, now - bucket.at) * self._per_second(rate)
        bucket.tokens, bucket.at = min(tokens, capacity), now
        return bucket

    def _per_second(self, rate: Rate) -> float:
        return rate.calls_per_minute / 60 / self._limits.nodes

    def _shared(self) -> str:
        nodes = self._limits.nodes
        return f", shared by {nodes} processes" if nodes > 1 else ""


def _rates_of(limits: EffectiveLimits, service: str, tool: str) -> dict[str, Rate]:
    """Return the rates of a call, by the pattern of each; that of all calls has none."""
    rates = {
        pattern: rate
        for pattern, rate in limits.tool_rates.items()
        if rate.calls_per_minute
        and fnmatchcase(f"{service}/{tool}" if "/" in pattern else service, pattern)
    }
    if limits.rate is not None and limits.rate.calls_per_minute:
        rates[""] = limits.rate
    return rates


def service_refused(limits: EffectiveLimits, service: str) -> NotAllowed:
    """Return the error for a service that a principal may not use."""
    return NotAllowed(
        f"The caller may not use the service {service!r:.130} ({limits.name('services')})."
    )
