"""The settings of `[[policies]]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.sessions.principals.rules import (
    EVERYBODY,
    PolicyLimits,
    PolicyRule,
    PolicySubject,
    PolicyTarget,
    Rate,
)

ISSUER = "https://login.example.org"


def rules_of(tmp_path: Path, text: str) -> tuple[PolicyRule, ...]:
    path = tmp_path / "statehold.toml"
    path.write_text(text)
    return load(config=path, environ={}).policy().principal_policies


def test_each_table_is_a_policy_of_its_subject(tmp_path: Path) -> None:
    text = f"""
[[policies]]
sessions = 5
rate = {{ calls_per_minute = 60 }}

[[policies]]
match = {{ principal = "Ann Lee", issuer = "{ISSUER}" }}
browser_hosts = ["*.example.org", "10.0.0.0/8"]

[[policies]]
match = {{ group = "crew" }}
services = []

[[policies]]
match = {{ role = "admin" }}
lifetime = 0
"""
    group = PolicyTarget(kind=PolicySubject.GROUP, name="crew")
    ann = PolicyTarget(kind=PolicySubject.PRINCIPAL, issuer=ISSUER, name="Ann Lee")
    assert rules_of(tmp_path, text) == (
        PolicyRule(EVERYBODY, PolicyLimits(sessions=5, rate=Rate(calls_per_minute=60))),
        PolicyRule(ann, PolicyLimits(browser_hosts=("*.example.org", "10.0.0.0/8"))),
        PolicyRule(group, PolicyLimits(services=())),
        PolicyRule(PolicyTarget(kind=PolicySubject.ROLE, name="admin"), PolicyLimits(lifetime=0)),
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("sessions = -1", "policies.0.sessions"),
        ("sessions = true", "policies.0.sessions"),
        ("idle = inf", "policies.0.idle"),
        ("rate = 60", "policies.0.rate"),
        ("rate = { calls_per_minute = 60, burst = 0 }", "policies.0.rate.burst"),
        ("session = 1", "policies.0.session"),
        ('browser_hosts = ["http://a/b"]', "policies.0.browser_hosts"),
        ('match = { role = "root" }', "policies.0.match.role"),
        ('match = { group = "a", principal = "b" }', "policies.0.match"),
        (f'match = {{ issuer = "{ISSUER}" }}', "policies.0.match"),
        (f'match = {{ role = "user", issuer = "{ISSUER}" }}', "policies.0.match"),
        ("sessions = 1\n[[policies]]\nsessions = 2", "each `match` should be there once"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_of(tmp_path, f"[[policies]]\n{line}\n")
    assert named in str(caught.value)
