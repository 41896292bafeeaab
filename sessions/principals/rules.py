"""Policies: the limits that an operator sets for one principal, a group, a role, or everybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ..records import Principal

_Count = Annotated[int, Field(strict=True, ge=0, le=10_000_000)]
_Seconds = Annotated[float, Field(strict=True, ge=0, le=3.2e9, allow_inf_nan=False)]
_Patterns = Annotated[tuple[str, ...], Field(max_length=1000)]


class Rate(BaseModel):
    """The rate of a token bucket."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    calls_per_minute: Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)] = (
        Field(description="Calls a minute, on average. 0: no limit.")
    )
    burst: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        default=None, description="Calls at once. Default: those of one minute."
    )

    @property
    def capacity(self) -> int:
        """The most calls at once."""
        return self.burst or max(1, int(self.calls_per_minute))

    def __str__(self) -> str:
        return f"{self.calls_per_minute:g} calls a minute, {self.capacity} at once"


class ApprovalPattern(BaseModel):
    """Calls that a person approves: those of a tool, and if it is given, with such a value of an argument."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: Annotated[str, Field(min_length=1, max_length=300)]
    argument: Annotated[str, Field(pattern="^(/|$)", max_length=300)] = ""
    """A JSON pointer (RFC 6901)."""
    value: Annotated[str, Field(max_length=1000)] = "*"

    def matches(self, service: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person approves a call. What is no text is compared as JSON."""
        if not fnmatchcase(f"{service}/{tool}", self.tool):
            return False
        found: Any = arguments
        for part in self.argument.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name) if isinstance(found, list) else name]
            except (IndexError, KeyError, TypeError, ValueError):
                return False
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return fnmatchcase(text, self.value)


class PolicyLimits(BaseModel):
    """The limits of one policy. A limit that is None is left to less specific policies. 0 is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: _Count | None = Field(
        default=None,
        description="Open sessions, of all processes of the store together. 0: no limit.",
    )
    stored_bytes: Annotated[int, Field(strict=True, ge=0, le=1 << 60)] | None = Field(
        default=None,
        description="Bytes that the sessions may take, as `limits.stored_bytes_per_principal`. 0: no limit.",
    )
    calls_in_flight: _Count | None = Field(
        default=None,
        description="Calls of services at a time, of all sessions together. Each process admits its share. 0: no limit.",
    )
    rate: Rate | None = Field(
        default=None,
        description="The rate of the calls of services: `calls_per_minute` (0: no limit) and `burst` (those of one minute). "
        "Each process admits its share.",
    )
    tool_rates: dict[str, Rate] | None = Field(
        default=None,
        description="Rates of the calls of single services or tools, such as "
        '`{"browser/browser_navigate" = {calls_per_minute = 20}}`. A key is `SERVICE` or `SERVICE/TOOL`, with `*` for any '
        "text.",
    )
    idle: _Seconds | None = Field(
        default=None,
        description="Longest `timeouts.idle` of a session, in seconds. A longer one is shortened when the session is "
        "created or imported. 0: no bound.",
    )
    lifetime: _Seconds | None = Field(
        default=None,
        description="Longest lifetime of a session from its creation, its import, or an extension, in seconds; a longer one "
        "is shortened. 0: no bound.",
    )
    services: _Patterns | None = Field(
        default=None,
        description="The services that may be used, with `*` for any text. An empty list allows none.",
    )
    browser_hosts: _Patterns | None = Field(
        default=None,
        description="The hosts that the built-in browser may reach, in the form of `allow` of a browser, which holds "
        "besides. An empty list allows none.",
    )
    approve: Annotated[tuple[ApprovalPattern, ...], Field(max_length=1000)] | None = Field(
        default=None,
        description="The calls that a person approves, beside those of `approve` of their service, such as "
        '`[{tool = "bank/send", argument = "/to", value = "*@example.org"}]`: `tool` is `SERVICE/TOOL`, `argument` a JSON '
        "pointer, and `value` its value, both with `*` for any text.",
    )


class PolicySubject(StrEnum):
    """The kinds of subjects of a policy, the most specific first."""

    PRINCIPAL = "principal"
    GROUP = "group"
    ROLE = "role"
    EVERYBODY = "everybody"


class PolicyTarget(BaseModel):
    """The subject of a policy. A group without an issuer is that group of every issuer."""

    model_config = ConfigDict(frozen=True)

    kind: PolicySubject
    issuer: str = ""
    name: str = ""

    @cached_property
    def digest(self) -> str:
        """The key of the store."""
        text = f"{self.kind.value}\n{len(self.issuer)}\n{self.issuer}{self.name}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def words(self) -> str:
        """The subject as messages name it."""
        if self.kind is PolicySubject.EVERYBODY:
            return "everybody"
        issuer = f" of {self.issuer}" if self.issuer else ""
        return f"{self.kind.value} {self.name}{issuer}"

    @classmethod
    def principal(cls, principal: Principal) -> PolicyTarget:
        return cls(kind=PolicySubject.PRINCIPAL, issuer=principal.issuer, name=principal.subject)


EVERYBODY: Final = PolicyTarget(kind=PolicySubject.EVERYBODY)
DEFAULT_ROLE: Final = "user"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A policy: the limits of one subject."""

    target: PolicyTarget
    limits: PolicyLimits


@dataclass(frozen=True, slots=True)
class Membership:
    """The groups of a principal in its tokens that have not expired, and the role in the one that was verified last."""

    groups: Sequence[str] = ()
    role: str = DEFAULT_ROLE
    ends: Mapping[str, float] = field(default_factory=dict[str, float])
    """When the last token expires that names a group, in seconds since 1970. Without it, the last token alone counts."""

    def after(self, former: Membership, now: float) -> Membership:
        """Return the membership of a principal whose other tokens named the groups of `former`."""
        ends = {group: end for group, end in former.ends.items() if end > now}
        for group, end in self.ends.items():
            ends[group] = max(end, ends.get(group, end))
        return Membership(tuple(dict.fromkeys((*ends, *self.groups))), self.role, ends)


NO_MEMBERSHIP: Final = Membership()


@dataclass(frozen=True, slots=True)
class PrincipalRecord:
    """A row of the store: the membership of a principal.

    `version` rises over all rows, so that a process reads the rows that have changed since it looked.
    """

    target: PolicyTarget
    membership: Membership
    policy: str
    """Limits that an earlier version of the program stored, as JSON. They are not used."""
    version: int


@dataclass(frozen=True, slots=True)
class PrincipalSummary:
    """The sessions of one principal."""

    owner: str
    open_sessions: int
    sessions: int
    """Open and closed ones."""
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationRecord:
    """A row of the store. Revoking a principal again replaces it."""

    owner: str
    """The key of the principal."""
    revoked_at: float
    revoked_by: str
    """The user of the machine who revoked it, in words."""
    reason: str | None = None
    until: float | None = None
    """When it ends by itself; None: with its restoration."""
    keeps_sessions: bool = False
    """Whether the sessions of the principal are paused, not closed."""

    def is_in_force(self, now: float) -> bool:
        return self.until is None or now < self.until
