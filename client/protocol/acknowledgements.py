"""Acknowledgements: they tell a server which results of operations have arrived, so that it can delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON


MAX_ACKNOWLEDGEMENTS: Final = 200
"""Results after which an acknowledgement is sent."""
LARGE: Final = 2 << 20
"""Characters of results after which it is sent sooner."""


class Acknowledgements:
    """The operations of one session whose results have arrived and are not acknowledged yet.

    A server keeps the result of each operation, since a client may ask for it again, and limits their number per session.
    """

    def __init__(self) -> None:
        self.epoch = 0
        """The last known epoch of the session, which rises when a process claims it. A call that is repeated in a later
        epoch may have been run by a process that is gone."""
        self._operations: dict[str, int] = {}
        self._size = 0

    def add(self, operation: str, payload: JSON) -> None:
        """Add an operation whose result has arrived."""
        size = sum(
            len(block.get("text") or block.get("data") or "")
            for block in payload.get("content") or ()
        )
        self._operations[operation] = size
        self._size += size

    def due(self) -> list[str]:
        """Return the operations that the next call has to acknowledge; empty, most of the time."""
        if len(self._operations) < MAX_ACKNOWLEDGEMENTS and self._size < LARGE:
            return []
        return list(self._operations)[:MAX_ACKNOWLEDGEMENTS]

    def remove(self, operations: list[str]) -> None:
        """Remove operations that the server has acknowledged."""
        for operation in operations:
            self._size -= self._operations.pop(operation, 0)


__all__ = ["Acknowledgements"]
