"""The effective limits of principals, from the policies of the configuration.

For each limit the most specific policy wins that sets it: that of the principal, of its groups, of its role, of everybody;
then `[limits]` of the configuration. Of several groups the most generous limit holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from ..owned_map import BoundedMap
from ..policy import Policy
from ..records import Principal, Timeouts
from .rules import (
    EVERYBODY,
    NO_MEMBERSHIP,
    ApprovalPattern,
    Membership,
    PolicyLimits,
    PolicyRule,
    PolicySubject,
    PolicyTarget,
    PrincipalRecord,
    Rate,
)

DEFAULTS: Final = "default"
"""The source of a limit that no policy sets."""
FIELDS: Final = tuple(PolicyLimits.model_fields)
MAX_KEPT: Final = 10_000
"""Principals whose effective limits are kept."""
_SETTINGS: Final = {
    "sessions": "limits.sessions_per_principal",
    "stored_bytes": "limits.stored_bytes_per_principal",
}


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """The limits of one principal. 0 and None are no limit."""

    sessions: int
    stored_bytes: int
    calls_in_flight: int
    rate: Rate | None
    tool_rates: Mapping[str, Rate]
    idle: float
    lifetime: float
    services: Sequence[str] | None
    browser_hosts: tuple[str, ...] | None
    approve: tuple[ApprovalPattern, ...] | None
    sources: Mapping[str, str]
    """The subject of the policy that each limit comes from, or DEFAULTS."""

    def name(self, limit: str) -> str:
        """Return a limit and where it comes from, for messages."""
        source = self.sources[limit]
        return _SETTINGS[limit] if source == DEFAULTS else f"{limit} of the policy of {source}"

    def allows_service(self, service: str) -> bool:
        return self.services is None or any(
            fnmatchcase(service, pattern) for pattern in self.services
        )

    def shorten(self, timeouts: Timeouts) -> Timeouts:
        """Return timeouts within the bounds of `idle` and `lifetime`."""
        shorter = {
            "idle": _bounded(timeouts.idle, self.idle),
            "lifetime": _bounded(timeouts.lifetime, self.lifetime),
        }
        return timeouts.model_copy(update=shorter)

    def describe(self) -> dict[str, Any]:
        """Return each limit with its source, as JSON. A limit that is 0 or null is none."""
        values: dict[str, Any] = {
            **{key: getattr(self, key) for key in FIELDS},
            "rate": None if self.rate is None else self.rate.model_dump(),
            "tool_rates": {key: rate.model_dump() for key, rate in self.tool_rates.items()},
            "services": None if self.services is None else list(self.services),
            "browser_hosts": None if self.browser_hosts is None else list(self.browser_hosts),
            "approve": self.approve and [each.model_dump() for each in self.approve],
        }
        return {key: {"limit": values[key], "source": self.sources[key]} for key in FIELDS}


def _bounded(seconds: float, bound: float) -> float:
    return min(seconds or bound, bound) if bound else seconds


class PrincipalLimits:
    """The limits of all principals, as this process knows them. It lives as long as the core."""

    def __init__(self, defaults: Policy) -> None:
        self._defaults = defaults
        self._policies: dict[PolicyTarget, PolicyLimits] = {}
        self._memberships: dict[str, Membership] = {}
        self._effective = BoundedMap[str, EffectiveLimits](MAX_KEPT)
        self.nodes = 1
        """The processes that share the limits of calls."""
        self.configure(defaults.principal_policies)

    def configure(self, rules: Iterable[PolicyRule]) -> None:
        """Use these policies in place of the former ones."""
        self._policies = {rule.target: rule.limits for rule in rules}
        self.is_active = bool(self._policies)
        """Whether there is any policy. Without one, callers look at the defaults alone."""
        self._effective.clear()

    def of(self, owner: str) -> EffectiveLimits:
        """Return the limits of a principal, by its key."""
        limits = self._effective.get(owner)
        if limits is None:
            limits = self._effective[owner] = self._resolve(owner)
        return limits

    def membership(self, owner: str) -> Membership:
        return self._memberships.get(owner, NO_MEMBERSHIP)

    def policy(self, target: PolicyTarget) -> PolicyLimits | None:
        """Return the policy of a subject."""
        return self._policies.get(target)

    def learn(self, owner: str, membership: Membership, now: float = 0.0) -> bool:
        """Note the groups and the role of a token of a principal. Return whether its membership is another than before."""
        former = self.membership(owner)
        membership = membership.after(former, now)
        if former == membership:
            return False
        self._memberships[owner] = membership
        self._effective.pop(owner, None)
        return True

    def update(self, records: Iterable[PrincipalRecord], unwritten: Collection[str] = ()) -> None:
        """Take over rows of the store that have changed, but those of principals whose groups here are newer."""
        for record in records:
            target = record.target
            if target.kind is PolicySubject.PRINCIPAL:
                owner = Principal(issuer=target.issuer, subject=target.name).key
                if owner not in unwritten:
                    self._memberships[owner] = record.membership
        self._effective.clear()

    def share(self, limit: int) -> int:
        """Return the part of a limit of calls that this process admits: at least one."""
        return max(1, limit // self.nodes)

    def _resolve(self, owner: str) -> EffectiveLimits:
        levels = self._levels(owner)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for limit in FIELDS:
            values[limit], sources[limit] = self._limit(limit, levels)
        values["tool_rates"] = values["tool_rates"] or {}
        for key in ("calls_in_flight", "idle", "lifetime"):
            values[key] = values[key] or 0
        return EffectiveLimits(**values, sources=sources)

    def _levels(self, owner: str) -> list[list[PolicyTarget]]:
        principal, membership = Principal.of_key(owner), self.membership(owner)
        group, role = PolicySubject.GROUP, PolicySubject.ROLE
        groups = [
            PolicyTarget(kind=group, issuer=issuer, name=name)
            for name in membership.groups
            for issuer in dict.fromkeys((principal.issuer, ""))
        ]
        return [
            [PolicyTarget.principal(principal)],
            groups,
            [PolicyTarget(kind=role, name=membership.role)],
            [EVERYBODY],
        ]

    def _limit(self, limit: str, levels: list[list[PolicyTarget]]) -> tuple[Any, str]:
        for targets in levels:
            found = [
                (value, target.words)
                for target in targets
                if (value := getattr(self._policies.get(target), limit, None)) is not None
            ]
            if found:
                return _most_generous(found)
        defaults = {
            "sessions": self._defaults.sessions_per_principal,
            "stored_bytes": self._defaults.stored_bytes_per_principal,
        }
        return defaults.get(limit), DEFAULTS


def _most_generous(found: Sequence[tuple[Any, str]]) -> tuple[Any, str]:
    first = found[0][0]
    if isinstance(first, tuple | dict) and len(found) > 1:
        source = ", ".join(source for _, source in found)
        if isinstance(first, tuple):
            return tuple(dict.fromkeys(item for value, _ in found for item in value)), source
        rates: dict[str, Rate] = {}
        for value, _ in found:
            for key, rate in value.items():
                rates[key] = max(rates.get(key, rate), rate, key=_size)
        return rates, source
    return max(found, key=lambda pair: _size(pair[0]))


def _size(value: object) -> tuple[float, float]:
    """Return the order of limits; 0 is no limit, and so the highest."""
    if isinstance(value, Rate):
        return value.calls_per_minute or math.inf, value.capacity
    return (value or math.inf, 0) if isinstance(value, int | float) else (0, 0)
