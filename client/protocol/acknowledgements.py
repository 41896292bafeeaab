"""What a server need not keep any more: the results of operations that arrived."""

from __future__ import annotations

from typing import Final

from ..results import JSON

MOST: Final = 200
"""Results after which the server is told that they arrived."""
LARGE: Final = 2 << 20
"""Characters of results after which it is told sooner."""


class Acknowledgements:
    """The operations of one session whose results are here, until the server was told.

    A server keeps the result of each operation, since it may be asked for it again, and has room for so many of a session.
    """

    def __init__(self) -> None:
        self.epoch = 0
        """How often the session has changed hands, as far as is known here: an id that is sent again after the next time may
        have been run by somebody who is gone."""
        self._operations: dict[str, int] = {}
        self._size = 0

    def add(self, operation: str, payload: JSON) -> None:
        """Note that the result of an operation is here."""
        size = sum(
            len(block.get("text") or block.get("data") or "")
            for block in payload.get("content") or ()
        )
        self._operations[operation] = size
        self._size += size

    def due(self) -> list[str]:
        """Return what the next call has to tell; empty, most of the time."""
        if len(self._operations) < MOST and self._size < LARGE:
            return []
        return list(self._operations)[:MOST]

    def told(self, operations: list[str]) -> None:
        """Forget what the server knows by now."""
        for operation in operations:
            self._size -= self._operations.pop(operation, 0)


__all__ = ["Acknowledgements"]
