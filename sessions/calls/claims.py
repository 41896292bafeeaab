"""The receipt of an idempotent call to one of our own tools, written before the call changes anything."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ..journal.entries import STARTED
from ..records import ReceiptRecord

_MADE: Final = "\1"
"""A prefix that no id of a caller can have."""


@dataclass(slots=True)
class Claim:
    """A call that must be the only one of its id. `receipt` is set as soon as its start is durable."""

    operation_id: str
    digest: str
    receipt: ReceiptRecord | None = None

    def begun(self, session_id: str, now: float) -> ReceiptRecord:
        """Return the receipt to store with the session before anything is changed."""
        return ReceiptRecord.model_construct(
            session_id=session_id,
            operation_id=self.operation_id,
            digest=self.digest,
            status=STARTED,
            seq=0,
            epoch=0,
            started_at=now,
        )


def making(operation_id: str) -> str:
    """Return the stored id of a call that creates a session. It belongs to the owner; other ids belong to a session."""
    return _MADE + hashlib.sha256(operation_id.encode(errors="surrogatepass")).hexdigest()


def is_making(operation_id: str) -> bool:
    """Return whether a stored id is that of the call that created its session."""
    return operation_id.startswith(_MADE)


class Repeated(Exception):
    """Raised when a call of this id began before; nothing was changed."""

    def __init__(self, receipt: ReceiptRecord) -> None:
        super().__init__(f"operation {receipt.operation_id!r} began before")
        self.receipt = receipt


__all__ = ["Claim", "Repeated", "is_making", "making"]
