"""Aliases for tools whose names clients reject."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ..sessions.attribution import attribute_text
from ..sessions.json_codec import JSON
from ..sessions.one_line import one_line

ALIAS_LENGTH: Final = 60
"""Characters of an alias with its prefix. The strictest clients accept 64; a number may follow."""
LISTED_ALIASES: Final = 5
"""Most aliases that describe_aliases() lists by name."""

_ACCEPTED: Final = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_HASH_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Alias:
    """A tool listed under an alias because clients reject its own name."""

    original_name: str
    name: str
    """Its name in the list."""


def has_alias(name: str, prefix: str) -> bool:
    """Whether a tool needs an alias, because clients reject its name with the prefix."""
    return _ACCEPTED.fullmatch(prefix + name) is None


def listed_name(name: str, prefix: str) -> str:
    """Return the name of a tool in the list: with the prefix, and as an alias if clients reject it.

    An alias has letters, digits, hyphens and underscores only. It depends on the name and the prefix alone, since it ends
    with a hash of the name; so it stays the same whatever else the service lists.
    """
    if not has_alias(name, prefix):
        return prefix + name
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9-]+", "_", letters).strip("_-") or "tool"
    room = max(ALIAS_LENGTH - len(prefix) - _HASH_DIGITS - 1, 1)
    return f"{prefix}{words[:room].rstrip('_-')}_{digits}"


def with_original_name(definition: JSON, name: str, service: str) -> JSON:
    """Return the definition of a tool with a sentence about its own name after its description.

    A name that looks like a note of Statehold gets the name of the service.
    """
    description: object = definition.get("description")
    sentence = f"The server calls this tool {_quote(name, service)}."
    text = f"{description}\n\n{sentence}" if isinstance(description, str) else sentence
    return {**definition, "description": text}


def describe_aliases(aliases: Sequence[Alias], service: str) -> str:
    """Return one line for a log or a report: the aliases of the tools of this service, and the reason."""
    examples = ", ".join(
        f"{_quote(alias.original_name, service)} is {alias.name}"
        for alias in aliases[:LISTED_ALIASES]
    )
    more = f" and {len(aliases) - LISTED_ALIASES} more" if len(aliases) > LISTED_ALIASES else ""
    return f"clients would reject {'this name' if len(aliases) == 1 else 'these names'}: {examples}{more}"


def _quote(name: str, service: str) -> str:
    return f'"{attribute_text(one_line(name)[:128], service)}"'


__all__ = ["Alias", "describe_aliases", "has_alias", "listed_name", "with_original_name"]
