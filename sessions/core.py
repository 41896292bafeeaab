"""The parts that a registry shares with everything it is built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clock import Clock, SystemClock
from .concurrency import BackgroundTasks
from .ids import new_id
from .journal.entries import Redactions
from .journal.redaction import Redactor
from .live.budget import Budget
from .live.deadlines import Deadlines
from .metrics.instruments import Metrics
from .node import Node
from .policy import Policy
from .principals.limits import PrincipalLimits
from .principals.rules import RevocationRecord
from .services import Service

if TYPE_CHECKING:
    from .store.sql import SQLStore


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that the sessions of one process share. It is built once and lives as long as the registry."""

    store: SQLStore
    node: Node
    services: dict[str, Service]
    """The configured services by name; services may be added while the process runs."""
    policy: Policy
    clock: Clock
    redactor: Redactor
    redactions: Redactions
    budget: Budget
    deadlines: Deadlines
    tasks: BackgroundTasks
    limits: PrincipalLimits
    new_id: Callable[[], str] = new_id
    """Returns the id of a new session."""
    file_bytes: Callable[[Sequence[str]], int] | None = None
    """Returns the bytes of the files that services keep for some sessions; it may block."""
    revoked: dict[str, RevocationRecord] = field(default_factory=dict[str, RevocationRecord])
    """The revoked principals by their keys, as the store had them last."""
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def create(
        cls,
        store: SQLStore,
        node: Node,
        services: Mapping[str, Service],
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] = new_id,
        file_bytes: Callable[[Sequence[str]], int] | None = None,
        metrics: Metrics | None = None,
    ) -> Core:
        """Build the parts that follow from the policy and the clock."""
        policy, clock = policy or Policy(), clock or SystemClock()
        metrics = metrics or Metrics()
        for name in services:
            metrics.add_service(name)
        redactor = Redactor(policy.redact, policy.redact_patterns, policy.secrets)
        tasks = BackgroundTasks()
        return cls(
            store,
            node,
            dict(services),
            policy,
            clock,
            redactor,
            Redactions(redactor, tasks),
            Budget(
                policy.live_sessions,
                queue=policy.queue,
                queue_seconds=policy.queue_seconds,
                most=policy.live_per_principal,
                queue_most=policy.queue_per_principal,
                shared=policy.shared,
            ),
            Deadlines(clock),
            tasks,
            PrincipalLimits(policy),
            new_id,
            file_bytes,
            metrics=metrics,
        )
