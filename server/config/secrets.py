"""The secrets in a configuration, which the journal and exports without secrets do not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...sessions.journal.redaction import Redactor
from ...sessions.policy import Policy
from ...tools.processes.launch import inherited_environment
from ...tools.upstream.config import UpstreamConfig
from ...tools.upstream.redaction import named_secrets

SHORTEST: Final = 6
"""The shortest value that counts as a secret; shorter ones occur in ordinary texts."""
_WORDS: Final = re.compile(r"[^\W\d_]+|[\d.,:]+|[/~.].*")
"""A word, a number, a path: no secret unless its name says so."""


def secrets_of(services: Iterable[object], inherit_env: Iterable[str]) -> tuple[str, ...]:
    """Return the secret texts of the services: by their names, by their look, and values of `env` that are no plain word."""
    found: set[str] = set()
    for service in services:
        if isinstance(service, UpstreamConfig) and not service.disabled:
            inherited = inherited_environment((*inherit_env, *service.inherit_env))
            found.update(named_secrets(service, inherited))
            found.update(
                value
                for value in service.env.values()
                if any(map(str.isdigit, value)) and not _WORDS.fullmatch(value)
            )
    return tuple(sorted(text for text in found if len(text) >= SHORTEST))


def redactor_of(policy: Policy) -> Redactor:
    """Return the redactor of a command that reads the store without a server."""
    return Redactor(policy.redact, policy.redact_patterns, policy.secrets)


__all__ = ["redactor_of", "secrets_of"]
