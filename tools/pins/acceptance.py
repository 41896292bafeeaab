"""A changed definition before a person: its difference from the pinned one, and that it is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ...sessions.json_codec import JSON
from ...sessions.one_line import escape_controls
from ...sessions.principals.audit_log import AuditEntry, AuditEvent, AuditLog
from ...sessions.records import LOCAL, Principal
from ...sessions.store.base import PinRecord

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


Part: TypeAlias = tuple[Literal["same", "old", "new"], str]
"""A part of two definitions: it is in both, or in one of them."""
MAX_WORDS: Final = 4000
"""The words of a definition that are compared; of a longer one, only the lines."""
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")


def difference(before: str, after: str) -> list[Part]:
    """Return the parts of two definitions, in order, with each character that is not seen as an escape."""
    old, new = _words(before), _words(after)
    parts: list[Part] = []
    for tag, first, last, begin, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if tag == "equal":
            parts.append(("same", "".join(old[first:last])))
            continue
        parts.append(("old", "".join(old[first:last])))
        parts.append(("new", "".join(new[begin:end])))
    return [part for part in parts if part[1]]


def _words(definition: str) -> list[str]:
    text = "\n".join(_lines(json.loads(definition)))
    words: list[str] = _WORD.findall(text)
    return words if len(words) <= MAX_WORDS else text.splitlines(keepends=True)


def _lines(document: JSON) -> Iterator[str]:
    """Yield a definition as a person reads it: texts as they are, everything else as JSON."""
    for name, value in document.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield f"{name}: " + "\n".join(map(escape_controls, text.split("\n")))


async def accept_pin(
    store: SQLStore,
    log: AuditLog | None,
    pin: PinRecord,
    now: float,
    *,
    actor: Principal = LOCAL,
    name: str | None = None,
) -> bool:
    """Pin the definition that a person was shown. Return False if the service offers a third one by now.

    Raises:
        StoreUnavailable: it cannot be stored, or not be recorded in a log that is required.
    """
    if log is not None:
        await log.admit(
            AuditEntry(
                at=now,
                event=AuditEvent.REQUEST,
                actor=actor,
                actor_name=name,
                operation="pins.accept",
                tool=f"{pin.service}/{pin.name}",
                outcome=pin.offered_digest,
                transport="command" if actor == LOCAL else "console",
            )
        )
    return await store.access.accept_pin(pin, now)
