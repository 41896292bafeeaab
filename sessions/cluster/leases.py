"""The interface between the heartbeat of a node and the leases in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from ..records import NodeRecord


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that is not dead, as the database has it."""

    record: NodeRecord
    beat: int
    is_expired: bool
    """Whether its lease is over by the clock of the database."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to a renewal."""

    beat: int | None
    """The beat of the renewed lease; None when the node was declared dead."""
    nodes: list[SeenNode]
    """All nodes that are not dead, the first to start first."""
    database_time: float
    is_reconnected: bool
    """Whether the connection was opened for it, so that the database may have lost commits."""


class Leases(Protocol):
    """The leases of nodes. Open it as an async context manager; leaving it closes the connection.

    Every method gives up after `within` seconds, and raises StoreUnavailable when the database does not answer. No other
    work delays a renewal: the connection is used for nothing else.
    """

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    async def renew(
        self, node: str, *, lease_seconds: float, sessions: int, within: float
    ) -> Renewal:
        """Renew the lease of a node, and return all nodes."""
        ...

    async def look(self, *, within: float) -> list[SeenNode]:
        """Return all nodes that are not dead, the first to start first."""
        ...

    async def declare_dead(self, node: str, beat: int, *, within: float) -> bool:
        """Mark a node dead if its lease is over and it still has that beat. Return False when it has not, or was dead."""
        ...

    async def owned_epochs(self, node: str, *, within: float) -> dict[str, int]:
        """Return the epochs of the sessions that a node owns, by id."""
        ...

    async def set_draining(self, node: str, *, within: float) -> None:
        """Report that a node takes on no more sessions. Cannot be undone."""
        ...
