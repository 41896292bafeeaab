"""The secrets in a configuration, which the journal, the log and exports without secrets do not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...sessions.journal.redaction import Redactor
from ...sessions.policy import Policy
from ...tools.processes.launch import inherited_environment
from ...tools.upstream.config import UpstreamConfig
from ...tools.upstream.redaction import is_setting, named_secrets

SHORTEST_SECRET: Final = 6
"""The shortest value that counts as a secret; shorter ones occur in ordinary texts."""
_WORDS: Final = re.compile(r"[^\W\d_]+|[\d.,:]+|[/~.].*")
"""A word, a number or a path: only a secret if its name says so."""


def secrets_of(services: Iterable[object], inherit_env: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of the services that are secret by name or by form, and values of `env` that may be secret."""
    secrets: set[str] = set()
    for service in services:
        if isinstance(service, UpstreamConfig) and not service.disabled:
            environment = inherited_environment((*inherit_env, *service.inherit_env))
            secrets.update(named_secrets(service, environment))
            secrets.update(
                value
                for name, value in service.env.items()
                if any(map(str.isdigit, value))
                and not _WORDS.fullmatch(value)
                and not is_setting(name, value)
            )
    return tuple(sorted(text for text in secrets if len(text) >= SHORTEST_SECRET))


def redactor_of(policy: Policy) -> Redactor:
    """Return the redactor of a command that reads the store without a server."""
    return Redactor(policy.redact, policy.redact_patterns, policy.secrets)
