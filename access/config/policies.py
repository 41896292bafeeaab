"""The settings of `[[policies]]`: limits of a principal, a group, a role, or everybody."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...sessions.principals.rules import (
    EVERYBODY,
    PolicyLimits,
    PolicyRule,
    PolicySubject,
    PolicyTarget,
)
from ...tools.browser.egress.network_policy import HostEntry
from .auth import Role
from .types import Section

_Text = Annotated[str, Field(min_length=1, max_length=2048)]
_HOSTS: TypeAdapter[tuple[HostEntry, ...]] = TypeAdapter(tuple[HostEntry, ...])


class PolicyMatch(Section):
    """The subject of a policy. An empty table is everybody."""

    principal: _Text | None = None
    group: _Text | None = None
    role: Role | None = None
    issuer: str = Field(default="", max_length=2048)

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        subjects = [name for name in ("principal", "group", "role") if getattr(self, name)]
        if len(subjects) > 1 or (self.issuer and subjects in ([], ["role"])):
            raise PydanticCustomError(
                "match", "Input should name a principal, a group or a role, or be empty"
            )
        return self

    @property
    def target(self) -> PolicyTarget:
        """The subject as the sessions know it."""
        if self.principal is not None:
            return PolicyTarget(
                kind=PolicySubject.PRINCIPAL, issuer=self.issuer, name=self.principal
            )
        if self.group is not None:
            return PolicyTarget(kind=PolicySubject.GROUP, issuer=self.issuer, name=self.group)
        if self.role is not None:
            return PolicyTarget(kind=PolicySubject.ROLE, name=self.role)
        return EVERYBODY


class PolicySettings(PolicyLimits):
    """One policy, as a table `[[policies]]`."""

    match: PolicyMatch | None = Field(
        default=None,
        description="The subject of the policy: `{principal = NAME}`, `{group = NAME}`, each also with an `issuer`, or "
        "`{role = NAME}`. Default: everybody.",
    )

    @field_validator("browser_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if hosts is None else _HOSTS.validate_python(hosts)

    @property
    def target(self) -> PolicyTarget:
        return EVERYBODY if self.match is None else self.match.target

    @property
    def rule(self) -> PolicyRule:
        values = {name: getattr(self, name) for name in PolicyLimits.model_fields}
        return PolicyRule(self.target, PolicyLimits(**values))
