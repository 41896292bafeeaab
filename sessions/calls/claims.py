"""What a call with an operation id leaves behind before it changes anything, when it is not one of a service."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ..journal.entries import STARTED
from ..records import ReceiptRecord

_MADE: Final = "\1"
"""No id of a caller's has it."""


@dataclass(slots=True)
class Claim:
    """A call that has to be the only one of its id. `receipt` is there as soon as it is durable that it began."""

    operation_id: str
    digest: str
    receipt: ReceiptRecord | None = None

    def begun(self, session_id: str, now: float) -> ReceiptRecord:
        """Return what is to be kept, before anything is changed, with the session."""
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
    """Return what the id of a call that makes a session is kept as: it is the owner's, the others are the session's."""
    return _MADE + hashlib.sha256(operation_id.encode(errors="surrogatepass")).hexdigest()


def is_making(operation_id: str) -> bool:
    """Tell whether a kept id is that of the call that made its session."""
    return operation_id.startswith(_MADE)


class Repeated(Exception):
    """Raised when a call of this id began before; nothing was changed."""

    def __init__(self, receipt: ReceiptRecord) -> None:
        super().__init__(f"operation {receipt.operation_id!r} began before")
        self.receipt = receipt


__all__ = ["Claim", "Repeated", "is_making", "making"]
