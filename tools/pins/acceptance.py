"""A changed definition before a person: its difference from the pinned one, and its acceptance."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.one_line import escape_controls
from ...sessions.principals.audit_log import AdmitRequest
from ...sessions.store.base import PinRecord

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


Part: TypeAlias = tuple[Literal["same", "old", "new"], str]
"""A part of two definitions: it is in both, or in one of them."""
MAX_COMPARED: Final = 2000
"""The most words, or else lines, of a definition that are compared: hostile ones take a time that grows with the cube."""
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")
_LINE: Final = re.compile(r".*\n|.+")


def difference(before: str, after: str) -> list[Part]:
    """Return the parts of two definitions, in order, with each invisible character as an escape.

    It compares words, of long definitions lines, and of longer ones nothing: the whole old one precedes the whole new one.
    A hostile pair takes two seconds, so an event loop runs it in a thread.
    """
    old, new = _split(_text(before), _text(after))
    parts: list[Part] = []
    for tag, first, last, begin, end in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            parts.append(("same", "".join(old[first:last])))
            continue
        parts.append(("old", "".join(old[first:last])))
        parts.append(("new", "".join(new[begin:end])))
    return [part for part in parts if part[1]]


def _split(before: str, after: str) -> tuple[list[str], list[str]]:
    for unit in (_WORD, _LINE):
        old, new = unit.findall(before), unit.findall(after)
        if max(len(old), len(new)) <= MAX_COMPARED:
            return old, new
    return [before], [after]


def _text(definition: str) -> str:
    """Return a definition as a person reads it: texts as they are, everything else as JSON."""
    try:
        members: JSON = json.loads(definition)
        return "\n".join(f"{name}: {_member_text(value)}" for name, value in members.items())
    except RecursionError:
        return escape_controls(definition)


def _member_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    # Without the blanks, a line of a text could pass for another member.
    return "\n  ".join(map(escape_controls, text.split("\n")))


async def accept_pin(store: SQLStore, admit: AdmitRequest, pin: PinRecord, now: float) -> bool:
    """Pin the definition that a person was shown. Return False if the service offers a third one by now.

    Raises:
        StoreUnavailable: It cannot be stored, or not be recorded in a log that is required.
    """
    tool, arguments = f"{pin.service}/{pin.name}", {"sha256": pin.offered_digest}
    with (
        suppress(InvalidArgument),
        await admit("pins.accept", tool=tool, arguments=arguments),
    ):
        if await store.access.accept_pin(pin, now):
            return True
        # The log has the code of this error as the outcome.
        raise InvalidArgument("The service offers a third definition.")
    return False
